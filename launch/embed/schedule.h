/* Schedule: which request stages which tokens next. The scheduler is no rank: it decides by the ledger, whose numbers all ranks agreed on, and by rules that
 * take values and give values.
 *
 *   WAITING --admit: a seat, units for what is known--> RUNNING --all tokens--> gone
 *      ^----------- preempted: chunks ran out ------------|     --abort-------> gone
 *
 * A request's tokens are its prompt and what was committed since; rows [0, rows) of them are in the cache. What is known and not yet in the cache is staged in
 * chunks; once all of it is, drafts may follow. A preempted request keeps its tokens, so it computes again what it had and goes on with the same.
 * Requests are in order of arrival; chunks that run out are taken from the youngest, so that the oldest always goes on. */
#ifndef EMBED_SCHEDULE_H
#define EMBED_SCHEDULE_H

#include "orders.h"
#include "transformer.h"
#include "wire.h"

enum { REQUESTS_MAX = 256 };

typedef struct Request {
    char     id[WIRE_ID_MAX + 1];
    uint64_t number;               /* kvgrid's id: a new one at each admission */
    int      running, is_prompt;   /* is_prompt: the shared system prompt, which stays */
    int      shares;               /* 1: its first rows are forked from that */
    uint32_t seat, lane;           /* while it runs */
    uint32_t count, end;           /* tokens known; at `end` it is done */
    uint32_t rows, booked, shared; /* rows in the cache; booked; full chunks' rows that are the shared prompt's */
    uint16_t token[MODEL_CONTEXT];
} Request;

typedef struct Lane { /* a micro-batch: at most one of its steps is undecided */
    int      busy;
    uint64_t sent_ns;              /* for the frontend's own deadline */
    uint64_t order;                /* the number of that step's order */
    uint32_t place_count;
    Request *place[PLACES_MAX];    /* NULL: gone since */
} Lane;

typedef struct Schedule {
    uint32_t  lanes, places, chunk, spec;
    int       forks;               /* 0: nothing is shared; every request computes the prompt itself */
    void    (*send)(void *user, const Order *order);
    void    (*committed)(void *user, const Request *request, uint64_t step, const uint16_t *tokens, uint32_t count, int done);
    void     *user;
    KvgLedger ledger, empty;       /* now, and with nothing open */
    Request  *request[REQUESTS_MAX];
    uint32_t  request_count;
    Lane      lane[LANES_MAX];
    uint8_t   seat_taken[SEATS_MAX];
    uint64_t  orders, numbers;     /* sent so far */
    uint32_t  refused_in_row;      /* steps that a rank voted down: they are staged again */
    uint64_t  bits;                /* the sum of model_bits over all tokens committed, modulo 2^52 */
    uint64_t  preempted, forked, drafted, kept, aborted, refused; /* for the summary */
} Schedule;

/* Adds a request, or the shared prompt. ECAPACITY: it never fits; EBUSY: the queue is full; EINVAL: its id is open. The sentence is in why [size]. */
KvgStatus schedule_add(Schedule *schedule, const WireLine *line, int is_prompt, char *why, size_t size);
/* 1 if it was there; in whatever state, it is gone then. */
int schedule_abort(Schedule *schedule, const char *id);
/* Admits whom it can, then sends every idle lane its next step. */
void schedule_turn(Schedule *schedule, uint64_t now_ns);
/* A step's outcome. EREFUSED where the ledger that came with it is not the scheduler's: a bug. */
KvgStatus schedule_outcome(Schedule *schedule, const Report *report);
/* Closes and frees all that is open. */
void schedule_clear(Schedule *schedule);

#endif
