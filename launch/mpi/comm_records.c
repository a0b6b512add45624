/* Records over MPI.
 *
 *   receives  per peer a ring of persistent receives, all posted; MPI matches them in the order they were started, so
 *             only the head of each ring can complete next. A slot is posted again at the take after it was given.
 *   sends     a ring of slots, each with one persistent send a peer from one copy of the record; the next one is reused
 *             when all its sends are done, else a slot is added: a peer that does not receive costs memory, never time. */
#include "launch/mpi/comm_internal.h"

#include <string.h>

#include <kvgrid/log.h>

#include "launch/mpi/mpi_util.h"
#include "runtime/base/memory.h"
#include "runtime/comm/clock.h"

#define SLOT_ALIGN 64u
#define REOPEN_NS  200000000u

static int receive_index(const MpiRecords *records, int peer_index)
{
    return peer_index * KVG_MPI_RECEIVE_DEPTH + (int)records->head_slots[peer_index];
}

/* ---- open */

static KvgStatus send_add(MpiComm *self)
{
    MpiRecords *records = &self->records;
    size_t      head_bytes = sizeof(MpiSend) + (size_t)records->peers * sizeof(MPI_Request);
    void       *memory = NULL;

    KVG_TRY(kvg_calloc(1, head_bytes + records->stride, "a send slot", &memory));
    MpiSend *slot = memory;

    slot->bytes = (uint8_t *)memory + head_bytes;
    for (int i = 0; i < records->peers; i++) {
        int code = MPI_Send_init(slot->bytes, (int)records->record_bytes, MPI_BYTE, records->peer_ranks[i], records->tag, self->comm,
                                 &slot->requests[i]);

        if (code != MPI_SUCCESS) {
            while (--i >= 0) {
                MPI_Request_free(&slot->requests[i]);
            }
            kvg_free(slot);
            return kvg_mpi_fail(code, "MPI comm, preparing a send");
        }
    }
    if (records->next_send == NULL) {
        slot->next = slot;
    } else { /* used now, and then again after the whole ring */
        slot->next = records->next_send->next;
        records->next_send->next = slot;
    }
    records->next_send = slot;
    records->send_count++;
    return KVG_OK;
}

static KvgStatus receives_start(MpiComm *self)
{
    MpiRecords *records = &self->records;
    int         count = records->peers * KVG_MPI_RECEIVE_DEPTH;

    for (int i = 0; i < count; i++) {
        int peer = records->peer_ranks[i / KVG_MPI_RECEIVE_DEPTH];

        KVG_MPI_TRY(MPI_Recv_init(records->slots + (size_t)i * records->stride, (int)records->record_bytes, MPI_BYTE, peer, records->tag,
                                  self->comm, &records->receives[i]), "MPI comm, preparing a receive");
    }
    for (int i = 0; i < records->peers; i++) {
        records->head_slots[i] = 0;
        records->heads[i] = records->receives[receive_index(records, i)];
    }
    if (count > 0) {
        KVG_MPI_TRY(MPI_Startall(count, records->receives), "MPI comm, posting receives");
    }
    records->started = 1;
    return KVG_OK;
}

static KvgStatus records_allocate(MpiComm *self)
{
    MpiRecords *records = &self->records;
    size_t      peers = (size_t)records->peers, count = peers * KVG_MPI_RECEIVE_DEPTH;
    void       *memory = NULL;

    KVG_TRY(KVG_NEW(peers, "the peers of an MPI comm", &records->peer_ranks));
    KVG_TRY(KVG_NEW(count, "receives of an MPI comm", &records->receives));
    KVG_TRY(KVG_NEW(peers, "receives of an MPI comm", &records->heads));
    KVG_TRY(KVG_NEW(peers, "receives of an MPI comm", &records->head_slots));
    KVG_TRY(kvg_calloc(count, records->stride, "receive slots of an MPI comm", &memory));
    records->slots = memory;
    for (size_t i = 0; i < count; i++) {
        records->receives[i] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < records->peers; i++) {
        records->peer_ranks[i] = i < self->rank ? i : i + 1;
    }
    return KVG_OK;
}

KvgStatus kvg_mpi_records_open(MpiComm *self, size_t record_bytes)
{
    MpiRecords *records = &self->records;
    KvgStatus   status = KVG_OK;

    if (record_bytes == 0 || record_bytes > INT32_MAX - SLOT_ALIGN) {
        return kvg_fail(KVG_EINVAL, "MPI comm: records of %zu bytes; 1 to %u are possible", record_bytes, INT32_MAX - SLOT_ALIGN);
    }
    /* No record is in flight, so this takes posted receives back; a large one may still owe its sender the last word. */
    kvg_mpi_records_close(self, kvg_clock_ns() + REOPEN_NS);
    records->record_bytes = record_bytes;
    records->stride = (record_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    records->tag = KVG_MPI_TAG_RECORDS + records->opened++ % KVG_MPI_TAG_SPAN;
    records->peers = self->ranks - 1;
    records->lent = -1;
    KVG_TRY_GOTO(records_allocate(self), err_close);
    for (int i = 0; i < KVG_MPI_SEND_SLOTS; i++) {
        KVG_TRY_GOTO(send_add(self), err_close);
    }
    KVG_TRY_GOTO(receives_start(self), err_close);
    return KVG_OK;
err_close:
    kvg_mpi_records_close(self, 0);
    return status;
}

/* ---- post and take */

KvgStatus kvg_mpi_records_post(MpiComm *self, const void *record)
{
    MpiRecords *records = &self->records;
    int         free_again = 0;

    KVG_ASSERT(records->record_bytes > 0); /* records_open comes first */
    if (records->peers == 0) {
        return KVG_OK;
    }
    int code = MPI_Testall(records->peers, records->next_send->requests, &free_again, MPI_STATUSES_IGNORE);

    if (code != MPI_SUCCESS || !free_again) { /* a failed send is a lost peer's: liveness tells */
        KVG_TRY(send_add(self));
    }
    MpiSend *slot = records->next_send;

    memcpy(slot->bytes, record, records->record_bytes);
    code = MPI_Startall(records->peers, slot->requests);
    if (code != MPI_SUCCESS) {
        kvg_log(KVG_LOG_WARN, "rank %d: a record was not sent to all: MPI code %d", self->rank, code);
    }
    records->next_send = slot->next;
    return KVG_OK;
}

/* The head of some peer's ring that has completed: *peer_index, -1 if none has. 0: what came is no record. */
static int receive_test(MpiComm *self, int *peer_index)
{
    MpiRecords *records = &self->records;
    MPI_Status  status;
    int         flag = 0, index = 0, byte_count = 0, code;

    if (records->peers == 1) {
        code = MPI_Test(&records->heads[0], &flag, &status);
    } else {
        code = MPI_Testany(records->peers, records->heads, &index, &flag, &status);
    }
    *peer_index = code == MPI_SUCCESS && !flag ? -1 : index;
    if (*peer_index < 0) { /* MPI_UNDEFINED is negative too */
        return 1;
    }
    MPI_Get_count(&status, MPI_BYTE, &byte_count);
    return code == MPI_SUCCESS && (size_t)byte_count == records->record_bytes;
}

/* The ring of this peer goes on to its next receive; the one it leaves is lent. */
static void receive_advance(MpiRecords *records, int peer_index)
{
    records->lent = receive_index(records, peer_index);
    records->head_slots[peer_index] = (records->head_slots[peer_index] + 1) % KVG_MPI_RECEIVE_DEPTH;
    records->heads[peer_index] = records->receives[receive_index(records, peer_index)];
}

const void *kvg_mpi_records_take(MpiComm *self, int *peer)
{
    MpiRecords *records = &self->records;
    int         peer_index = -1;

    *peer = -1;
    if (records->lent >= 0) {
        MPI_Start(&records->receives[records->lent]);
        records->lent = -1;
    }
    if (records->record_bytes == 0 || records->peers == 0) {
        return NULL;
    }
    int sound = receive_test(self, &peer_index);

    if (peer_index < 0) {
        return NULL;
    }
    receive_advance(records, peer_index);
    if (!sound) {
        kvg_log(KVG_LOG_WARN, "rank %d: what rank %d sent is no record of %zu bytes; dropped", self->rank,
                records->peer_ranks[peer_index], records->record_bytes);
        return NULL;
    }
    *peer = records->peer_ranks[peer_index];
    return records->slots + (size_t)records->lent * records->stride;
}

/* ---- close */

/* Frees persistent requests; *done falls to 0 when one is still in flight and its buffer must stay. */
static void requests_end(int count, MPI_Request *requests, uint64_t deadline_ns, int *done)
{
    int settled = kvg_mpi_settle(count, requests, deadline_ns);

    for (int i = 0; i < count; i++) {
        if (requests[i] != MPI_REQUEST_NULL) {
            MPI_Request_free(&requests[i]);
        }
    }
    *done &= settled;
}

static int sends_close(MpiRecords *records, uint64_t deadline_ns)
{
    int all_done = 1;

    for (; records->send_count > 0; records->send_count--) {
        MpiSend *slot = records->next_send;
        int      done = 1;

        records->next_send = slot->next;
        requests_end(records->peers, slot->requests, deadline_ns, &done);
        if (done) {
            kvg_free(slot);
        }
        all_done &= done;
    }
    records->next_send = NULL;
    return all_done;
}

static int receives_close(MpiRecords *records, uint64_t deadline_ns)
{
    int count = records->peers * KVG_MPI_RECEIVE_DEPTH, done = 1;

    for (int i = 0; records->started && i < count; i++) { /* the lent one is not in flight */
        if (i != records->lent && records->receives[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&records->receives[i]);
        }
    }
    requests_end(count, records->receives, deadline_ns, &done);
    return done;
}

int kvg_mpi_records_close(MpiComm *self, uint64_t deadline_ns)
{
    MpiRecords *records = &self->records;
    int         done = sends_close(records, deadline_ns);

    if (records->slots != NULL && !receives_close(records, deadline_ns)) {
        done = 0;
        records->slots = NULL; /* MPI may still write there */
    }
    kvg_free(records->peer_ranks);
    kvg_free(records->receives);
    kvg_free(records->heads);
    kvg_free(records->head_slots);
    kvg_free(records->slots);
    *records = (MpiRecords){ .opened = records->opened, .lent = -1 };
    return done;
}
