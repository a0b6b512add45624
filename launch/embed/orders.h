/* Orders and reports: what the frontend and its workers say to each other, over a socket pair that keeps messages whole (SOCK_SEQPACKET).
 *
 *   frontend -> every worker  the same orders in the same sequence: so that posted calls and step begins come in one order on all ranks
 *   worker -> frontend        READY once; OUTCOME of each step, from the last stage's first rank alone; FAULT; DONE after STOP
 *
 * Structs of one program in one host's memory: they go over as they lie. */
#ifndef EMBED_ORDERS_H
#define EMBED_ORDERS_H

#include <kvgrid/kvgrid.h>

enum { LANES_MAX = 8, PLACES_MAX = 16, STEP_TOKENS_MAX = 512, SPEC_MAX = 8, SEATS_MAX = LANES_MAX * PLACES_MAX + 1, WORDS_MAX = 600 };

typedef enum OrderKind { ORDER_OPEN, ORDER_FORK, ORDER_CLOSE, ORDER_STEP, ORDER_STOP } OrderKind;

typedef struct OrderPlace {
    uint16_t seat;    /* whose sequence */
    uint16_t rows;    /* tokens staged */
    uint16_t drafts;  /* the last of them, which are kept while the model says the same */
    uint16_t samples; /* 1: the model's next tokens are wanted; 0: the middle of a prompt */
} OrderPlace;

typedef struct Order {
    OrderKind  kind;
    uint32_t   lane;                   /* STEP */
    uint32_t   seat, from;             /* OPEN, FORK (of seat `from`), CLOSE */
    uint64_t   id, shared, rows;       /* OPEN, FORK: kvgrid's id, rows taken over, rows booked */
    uint32_t   place_count, token_count;
    OrderPlace place[PLACES_MAX];
    uint16_t   token[STEP_TOKENS_MAX]; /* of the places, one after the other */
} Order;

typedef enum ReportKind { REPORT_READY, REPORT_OUTCOME, REPORT_FAULT, REPORT_DONE } ReportKind;

typedef struct ReportPlace {
    KvgStatus refusal;
    uint16_t  accepted;            /* rows kept */
    uint16_t  count;               /* tokens sampled */
    uint16_t  token[SPEC_MAX + 1];
    uint64_t  bits;                /* the sum of their model_bits */
} ReportPlace;

typedef struct Report {
    ReportKind  kind;
    uint32_t    rank, lane;
    int         lost;               /* FAULT: whom the grid reports as lost; -1: nobody */
    uint64_t    step;
    KvgStatus   status;             /* OUTCOME: KVG_OK if published; FAULT */
    ReportPlace place[PLACES_MAX];
    KvgLedger   ledger;             /* READY, OUTCOME: this worker's, to be compared with the scheduler's */
    uint64_t    booked_bytes;       /* DONE */
    uint32_t    step_ns, library_ns, wait_ns; /* DONE, medians: a whole step; of it begin and post; and the wait for the others' votes */
    char        words[WORDS_MAX];   /* FAULT, OUTCOME that is not published */
} Report;

#endif
