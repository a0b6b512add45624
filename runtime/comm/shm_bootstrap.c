/* Shared-memory bootstrap: a hall with a seat a rank, and an all-gather in pieces.
 *
 *   hall   ShmHall, seats [ranks], data [2][ranks][PIECE_BYTES]
 *   seat   FREE (pid 0) --claimed by its pid--> TAKEN --process written--> HERE --destroy, or a failed all-gather--> LEFT
 *   piece  1 each writes its part  2 raises `arrived`  3 reads the part of every rank that has arrived
 * The data's two halves take turns: nobody writes piece p+2 before all have read p, since all must arrive at p+1 in between.
 * A rank that fails leaves with its sentence in its seat, and whoever waits for it fails with the same. */
#include "runtime/comm/shm_bootstrap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/shm.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/process.h"
#include "runtime/comm/shm_segment.h"

#define HALL_MAGIC         0x3148474bu /* "KGH1" */
#define PIECE_BYTES        ((size_t)64 << 10)
#define WHY_BYTES          400
#define GAVE_UP            " gave up: "
#define TIMEOUT_MS_DEFAULT 30000u
#define LOOK_ROUNDS        32u /* fruitless rounds between two looks whether a rank lives */
#define LINE               64

typedef enum SeatState { SEAT_TAKEN = 0, SEAT_HERE, SEAT_LEFT } SeatState;

typedef struct ShmSeat {
    _Alignas(LINE) atomic_llong pid; /* 0: free */
    atomic_int   state;              /* SeatState, of a seat that has a pid */
    atomic_int   met;                /* it has seen every seat taken: then all were here, whatever has become of them since */
    KvProcess    process;            /* from HERE on */
    int          status;             /* LEFT: the KvgStatus and the sentence of those who wait for it */
    char         why[WHY_BYTES];
    _Alignas(LINE) atomic_uint arrived; /* pieces it has given */
    uint64_t     bytes[2];           /* of the all-gather that piece p belongs to, at p % 2 */
} ShmSeat;

typedef struct ShmHall {
    uint32_t   magic;
    int32_t    ranks;
    ShmSeat    seats[];
} ShmHall;

typedef struct ShmBootstrap {
    ShmHall *hall;
    size_t   hall_bytes;
    uint8_t *data;
    int      rank, ranks;
    int     *watches; /* [ranks] pidfds, -1: not yet */
    KvgStatus failed; /* the first failure; every later all-gather answers it */
    char     why[WHY_BYTES];
} ShmBootstrap;

static size_t seats_end(int ranks)
{
    size_t bytes = sizeof(ShmHall) + (size_t)ranks * sizeof(ShmSeat);

    return (bytes + LINE - 1) / LINE * LINE;
}

static size_t hall_bytes_of(int ranks)
{
    return seats_end(ranks) + 2 * (size_t)ranks * PIECE_BYTES;
}

static uint8_t *place_of(const ShmBootstrap *self, unsigned piece, int rank)
{
    return self->data + ((size_t)(piece % 2) * (size_t)self->ranks + (size_t)rank) * PIECE_BYTES;
}

/* ---- who is there */

static long long pid_of(const ShmBootstrap *self, int rank)
{
    return (long long)atomic_load(&self->hall->seats[rank].pid);
}

/* Why `rank` will not come, or KVG_OK. */
static KvgStatus look_at(ShmBootstrap *self, int rank)
{
    const ShmSeat *seat = &self->hall->seats[rank];

    if (rank == self->rank || atomic_load(&seat->pid) == 0 || atomic_load(&seat->state) == SEAT_TAKEN) {
        return KVG_OK;
    }
    if (self->watches[rank] == -1 && atomic_load(&seat->state) == SEAT_HERE) {
        KVG_TRY(kvg_process_near(&self->hall->seats[self->rank].process, self->rank, &seat->process, rank));
        KVG_TRY(kvg_process_open(&seat->process, rank, &self->watches[rank]));
    }
    if (atomic_load(&seat->state) == SEAT_LEFT) {
        return kvg_fail((KvgStatus)seat->status, "%.*s", WHY_BYTES, seat->why);
    }
    if (kvg_process_ended(self->watches[rank])) {
        return kvg_fail(KVG_EPEER, "shared memory: rank %d (host %.63s, pid %lld) is gone", rank, seat->process.who.host, pid_of(self, rank));
    }
    return KVG_OK;
}

/* "2, 3 (pid 4711)": the ranks that are not here, or that did not arrive at `piece`. Returns how many. */
static int name_missing(const ShmBootstrap *self, unsigned piece, char *names, size_t room)
{
    int    missing = 0;
    size_t used = 0;

    names[0] = '\0';
    for (int rank = 0; rank < self->ranks; rank++) {
        const ShmSeat *seat = &self->hall->seats[rank];
        int            here = pid_of(self, rank) != 0 && atomic_load(&seat->state) != SEAT_TAKEN;

        if (here && atomic_load(&seat->arrived) >= piece) {
            continue;
        }
        missing++;
        if (used + 40 < room) {
            used += (size_t)snprintf(names + used, room - used, here ? "%s%d (pid %lld)" : "%s%d", used > 0 ? ", " : "", rank, pid_of(self, rank));
        }
    }
    return missing;
}

/* ---- the all-gather */

static KvgStatus await_piece(ShmBootstrap *self, int rank, unsigned piece, uint64_t deadline_ns, uint32_t timeout_ms)
{
    const ShmSeat *seat = &self->hall->seats[rank];
    char           names[200];

    for (uint64_t rounds = 1; atomic_load_explicit(&seat->arrived, memory_order_acquire) < piece; rounds++) {
        KvgStatus status = rounds % LOOK_ROUNDS == 0 ? look_at(self, rank) : KVG_OK;

        if (status != KVG_OK && atomic_load(&seat->arrived) >= piece) { /* it came, and then it went */
            return KVG_OK;
        }
        KVG_TRY(status);
        if (kvg_clock_ns() >= deadline_ns) {
            name_missing(self, piece, names, sizeof names);
            return kvg_fail(KVG_EINDOUBT, "shared memory: rank %s of %d did not call in to an all-gather of rank %d within %u ms; is it stopped, "
                            "or does it take another path?", names, self->ranks, self->rank, timeout_ms);
        }
        kvg_clock_relax(rounds);
    }
    return KVG_OK;
}

static KvgStatus gather_piece(ShmBootstrap *self, const uint8_t *mine, uint8_t *all, size_t bytes, size_t from, uint64_t deadline_ns,
                              uint32_t timeout_ms)
{
    ShmSeat *seat = &self->hall->seats[self->rank];
    unsigned piece = atomic_load(&seat->arrived) + 1;
    size_t   part = bytes - from < PIECE_BYTES ? bytes - from : PIECE_BYTES;

    if (part > 0) {
        memcpy(place_of(self, piece, self->rank), mine + from, part);
    }
    seat->bytes[piece % 2] = bytes;
    atomic_store_explicit(&seat->arrived, piece, memory_order_release);
    for (int rank = 0; rank < self->ranks; rank++) {
        const ShmSeat *other = &self->hall->seats[rank];

        KVG_TRY(await_piece(self, rank, piece, deadline_ns, timeout_ms));
        if (other->bytes[piece % 2] != bytes) {
            return kvg_fail(KVG_ELAYOUT, "shared memory: rank %d gives %zu bytes to an all-gather, rank %d gives %llu; all must give as many", self->rank,
                            bytes, rank, (unsigned long long)other->bytes[piece % 2]);
        }
        if (part > 0) {
            memcpy(all + (size_t)rank * bytes + from, place_of(self, piece, rank), part);
        }
    }
    return KVG_OK;
}

/* The others need not wait for this rank any more; whoever does fails with this. */
static void leave(ShmBootstrap *self, KvgStatus status, const char *sentence)
{
    ShmSeat *seat = &self->hall->seats[self->rank];

    seat->status = status == KVG_EINDOUBT || status == KVG_ELAYOUT ? status : KVG_EPEER; /* a want of memory is this rank's alone */
    snprintf(seat->why, sizeof seat->why, "%s", sentence);
    atomic_store(&seat->state, SEAT_LEFT);
}

static KvgStatus fail_for_all(ShmBootstrap *self, KvgStatus status)
{
    const MeshIdentity *who = &self->hall->seats[self->rank].process.who;
    char                sentence[WHY_BYTES];

    self->failed = status;
    snprintf(self->why, sizeof self->why, "%s", kvg_last_error());
    if (strstr(self->why, GAVE_UP) != NULL) { /* another's sentence is handed on as it is */
        leave(self, status, self->why);
    } else {
        snprintf(sentence, sizeof sentence, "rank %d (host %.63s, pid %lld)" GAVE_UP "%.250s", self->rank, who->host, (long long)who->pid, self->why);
        leave(self, status, sentence);
    }
    return status;
}

static KvgStatus shm_allgather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    ShmBootstrap *self = user;
    uint64_t      deadline_ns = kvg_clock_ns() + (uint64_t)timeout_ms * 1000000u;

    if (self->failed != KVG_OK) {
        return kvg_fail(self->failed, "%s", self->why);
    }
    if (bytes > KVG_SHM_BYTES_MAX) {
        return fail_for_all(self, kvg_fail(KVG_EINVAL, "shared memory: an all-gather of %zu bytes a rank; at most %zu", bytes, KVG_SHM_BYTES_MAX));
    }
    size_t from = 0;

    do {
        KvgStatus status = gather_piece(self, mine, all, bytes, from, deadline_ns, timeout_ms);

        if (status != KVG_OK) {
            return fail_for_all(self, status);
        }
        from += PIECE_BYTES;
    } while (from < bytes);
    return KVG_OK;
}

int kvg_shm_is(const KvgBootstrap *bootstrap)
{
    return bootstrap->allgather == shm_allgather;
}

/* ---- making */

static KvgStatus check_ranks(int ranks)
{
    if (ranks < 1 || ranks > KVG_SHM_RANKS_MAX) {
        return kvg_fail(KVG_EINVAL, "shared memory: %d ranks; 1 to %d are possible", ranks, KVG_SHM_RANKS_MAX);
    }
    return KVG_OK;
}

KvgStatus kvg_shm_memory(int ranks, int *fd_p)
{
    void     *memory = NULL;
    size_t    bytes = 0;
    int       fd = -1;
    KvgStatus status = check_ranks(ranks);

    if (fd_p == NULL) {
        return kvg_fail(KVG_EINVAL, "shared memory: no place for the descriptor was given");
    }
    KVG_TRY(status);
    KVG_TRY(kvg_shm_segment_create(hall_bytes_of(ranks), &fd));
    KVG_TRY_GOTO(kvg_shm_segment_map(fd, &memory, &bytes), err_close);
    ((ShmHall *)memory)->ranks = ranks;
    ((ShmHall *)memory)->magic = HALL_MAGIC;
    kvg_shm_segment_unmap(memory, bytes);
    *fd_p = fd;
    return KVG_OK;
err_close:
    kvg_mesh_close_fd(&fd);
    return status;
}

static int name_is_sound(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

    return length > 0 && length <= KVG_SHM_NAME_MAX && name[length] == '\0';
}

static KvgStatus check_options(const KvShmOptions *options, const KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return kvg_fail(KVG_EINVAL, "shared memory: options and a place for the bootstrap must be given");
    }
    KVG_TRY(check_ranks(options->ranks));
    if (options->rank < 0 || options->rank >= options->ranks) {
        return kvg_fail(KVG_EINVAL, "shared memory: rank %d of %d ranks", options->rank, options->ranks);
    }
    if ((options->name == NULL) == (options->fd == -1)) {
        return kvg_fail(KVG_EINVAL, "shared memory: either a name or an inherited descriptor must be given, not both or neither");
    }
    if (options->name != NULL && !name_is_sound(options->name)) {
        return kvg_fail(KVG_EINVAL, "shared memory: the name \"%.80s\" is not 1 to %d letters, digits, '-', '_' or '.'", options->name, KVG_SHM_NAME_MAX);
    }
    return KVG_OK;
}

/* Maps the hall and sees that it is one for this many ranks. */
static KvgStatus enter_hall(ShmBootstrap *self, int fd)
{
    void *memory = NULL;

    KVG_TRY(kvg_shm_segment_map(fd, &memory, &self->hall_bytes));
    self->hall = memory;
    if (self->hall_bytes < sizeof(ShmHall) || self->hall->magic != HALL_MAGIC) {
        return kvg_fail(KVG_EINVAL, "shared memory: this is not the memory of a bootstrap of this version");
    }
    if (self->hall->ranks != self->ranks || self->hall_bytes != hall_bytes_of(self->ranks)) {
        return kvg_fail(KVG_EINVAL, "shared memory: rank %d was started as one of %d, and this memory is for %d ranks", self->rank, self->ranks,
                        self->hall->ranks);
    }
    self->data = (uint8_t *)memory + seats_end(self->ranks);
    return KVG_OK;
}

static KvgStatus take_seat(ShmBootstrap *self)
{
    ShmSeat  *seat = &self->hall->seats[self->rank];
    KvProcess me;
    long long nobody = 0;

    KVG_TRY(kvg_process_self(&me));
    if (!atomic_compare_exchange_strong(&seat->pid, &nobody, (long long)me.who.pid)) {
        return kvg_fail(KVG_EINVAL, "shared memory: rank %d is taken by process %lld; each rank has one process, and each set of processes a memory of its own",
                        self->rank, nobody);
    }
    seat->process = me;
    atomic_store(&seat->state, SEAT_HERE);
    return KVG_OK;
}

static int have_met(const ShmBootstrap *self)
{
    int any = 0;

    for (int rank = 0; rank < self->ranks; rank++) {
        any |= atomic_load(&self->hall->seats[rank].met);
    }
    return any;
}

/* Until every seat is taken; a process that ends before that is named. */
static KvgStatus await_all(ShmBootstrap *self, ShmDoor *door, int fd, uint64_t deadline_ns, uint32_t timeout_ms)
{
    char names[200];

    for (uint64_t rounds = 0;; rounds++) {
        if (door->fd != -1) {
            kvg_shm_door_serve(door, fd);
        }
        if (have_met(self) || name_missing(self, 0, names, sizeof names) == 0) {
            atomic_store(&self->hall->seats[self->rank].met, 1);
            return KVG_OK;
        }
        for (int rank = 0; rank < self->ranks; rank++) {
            KvgStatus status = look_at(self, rank);

            if (status != KVG_OK && !have_met(self)) {
                return status;
            }
        }
        if (kvg_clock_ns() >= deadline_ns) {
            return kvg_fail(KVG_EINDOUBT, "shared memory: rank %s of %d did not come within %u ms; were all started, on this host%s", names, self->ranks,
                            timeout_ms, door->last_stranger[0] != '\0' ? door->last_stranger : "?");
        }
        kvg_clock_relax(rounds);
    }
}

static void free_self(ShmBootstrap *self)
{
    for (int rank = 0; self->watches != NULL && rank < self->ranks; rank++) {
        kvg_mesh_close_fd(&self->watches[rank]);
    }
    kvg_shm_segment_unmap(self->hall, self->hall_bytes);
    kvg_free(self->watches);
    kvg_free(self);
}

/* Gets the memory, by whichever way, and waits in it for the others. */
static KvgStatus gather_all(ShmBootstrap *self, const KvShmOptions *options, uint64_t deadline_ns, uint32_t timeout_ms)
{
    ShmDoor   door = { .fd = -1 };
    int       fd = options->fd, seated = 0;
    KvgStatus status = KVG_OK;

    if (options->name != NULL && options->rank == 0) {
        KVG_TRY(kvg_shm_memory(options->ranks, &fd));
        KVG_TRY_GOTO(kvg_shm_door_open(options->name, &door), out);
    } else if (options->name != NULL) {
        KVG_TRY(kvg_shm_door_call(options->name, deadline_ns, &fd));
    }
    KVG_TRY_GOTO(enter_hall(self, fd), out);
    KVG_TRY_GOTO(take_seat(self), out);
    seated = 1;
    KVG_TRY_GOTO(await_all(self, &door, fd, deadline_ns, timeout_ms), out);
out:
    if (seated && status != KVG_OK) {
        fail_for_all(self, status);
    }
    kvg_shm_door_close(&door);
    if (options->name != NULL) {
        kvg_mesh_close_fd(&fd);
    }
    return status;
}

KvgStatus kvg_shm_bootstrap_create(const KvShmOptions *given, KvgBootstrap *bootstrap)
{
    static const KvShmOptions defaults = KVG_SHM_OPTIONS_INIT;
    KvShmOptions              own, *options = &own;
    KvgStatus                 status;

    KVG_TRY(KVG_SIZED_IN(KvShmOptions, given, defaults, own));
    KVG_TRY(check_options(options, given != NULL ? bootstrap : NULL));
    uint32_t timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS_DEFAULT;
    uint64_t deadline_ns = kvg_clock_ns() + (uint64_t)timeout_ms * 1000000u;

    ShmBootstrap *self = NULL;
    KVG_TRY(KVG_NEW(1, "a shared-memory bootstrap", &self));

    self->rank = options->rank;
    self->ranks = options->ranks;
    KVG_TRY_GOTO(KVG_NEW((size_t)options->ranks, "a shared-memory bootstrap", &self->watches), err_free);
    memset(self->watches, -1, (size_t)options->ranks * sizeof(int));
    KVG_TRY_GOTO(gather_all(self, options, deadline_ns, timeout_ms), err_free);
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
    bootstrap->user = self;
    bootstrap->rank = self->rank;
    bootstrap->ranks = self->ranks;
    bootstrap->allgather = shm_allgather;
    return KVG_OK;
err_free:
    free_self(self);
    return status;
}

void kvg_shm_bootstrap_destroy(KvgBootstrap *bootstrap)
{
    if (bootstrap == NULL || bootstrap->user == NULL || !kvg_shm_is(bootstrap)) {
        return;
    }
    ShmBootstrap *self = bootstrap->user;

    if (self->failed == KVG_OK) {
        const MeshIdentity *who = &self->hall->seats[self->rank].process.who;
        char                sentence[WHY_BYTES];

        snprintf(sentence, sizeof sentence, "shared memory: rank %d (host %.63s, pid %lld) has left the bootstrap", self->rank, who->host,
                 (long long)who->pid);
        leave(self, KVG_EPEER, sentence);
    }
    free_self(self);
    *bootstrap = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
}
