/* kill_ranks, inside.
 *
 *   kill_ranks.c      what is drawn, the fault itself, the order of a trial, and the counts at the end
 *   kill_processes.c  runs and their processes: started, awaited, and looked at for what may be left of them
 *   kill_reference.c  runs without a fault: what a trial's survivors are held against
 *   kill_judge.c      what must be true after a trial */
#ifndef KILL_RANKS_H
#define KILL_RANKS_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

enum { TIMEOUT_MS = 1000, PEER_MS = 200, SLACK_MS = 1000, RANKS_MAX = 4, RUN_LIMIT_S = 60, SOCKETS_MAX = 256, SAMPLES_MAX = 20000, TRIALS_TELLING = 8, SHAPES = 8 };

typedef enum Fault { KILL, TWO, FREEZE, WAKE, LEAVE, STALL, OOM, LIMIT, LAUNCHER, FAULTS } Fault;

typedef struct Shape {
    int         tp, pp;
    const char *layout;
} Shape;

typedef struct TrailPoint {
    char agreed[17], stored[17];
} TrailPoint;

typedef struct Reference { /* a run without a fault */
    int         made;
    double      seconds;
    char        digest[33];
    uint64_t    commits, grows;
    TrailPoint *trail[RANKS_MAX]; /* [commits] */
} Reference;

typedef struct Samples {
    double ms[SAMPLES_MAX];
    size_t count;
} Samples;

typedef struct Harness {
    const char *kvgrid, *data, *requests; /* requests: how many a run serves */
    char        scratch[64];
    uint64_t    seed;
    int         verbose, list, skipped; /* skipped: a fault, or FAULTS */
    Reference   reference[SHAPES];
    Samples     noticed[FAULTS];
    uint64_t    ran[FAULTS], early[FAULTS], late[FAULTS], judged, violations; /* judged: what survivors hold was held against the reference */
} Harness;

typedef struct Trial {
    uint64_t number;
    Fault    fault;
    int      shape, victim, second, ranks; /* second: killed in the midst of the others' settling; -1: none */
    double   share;     /* of the run's length: when */
    double   wake_ms;   /* after which a frozen one is woken */
    double   second_ms; /* between the two */
    uint64_t draw;
    pid_t    launcher, pids[RANKS_MAX];
    int      found;     /* pids are known */
    double   struck_ms; /* on the clock; 0: it has not been */
    double   ended_ms;  /* the launcher was gone */
    int      hit;       /* the signal found its process running */
    unsigned long sockets[SOCKETS_MAX];
    int      socket_count;
    int      status;    /* of the launcher, as waitpid says */
    char     out[96], err[96];
} Trial;

extern const char *const fault_names[FAULTS];
extern const Shape       shapes[SHAPES];

/* Says what is wrong, and counts it. */
void violation(Harness *harness, const Trial *trial, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- kill_processes.c */

double now_ms(void);
void   sleep_ms(double ms);
char  *slurp(const char *path); /* a file's text, empty where there is none; malloc's */

/* Children of a process, lowest id first, which is their ranks' order. */
int children_of(pid_t parent, pid_t *pids, int most);
/* Notes the sockets that the process has open; and that it holds nothing that could outlive it. */
void look_at_files(Harness *harness, Trial *trial, pid_t pid);
/* Sockets of the run that the kernel still lists. */
void look_for_sockets(Harness *harness, const Trial *trial);
/* fault NULL: none is scripted. */
pid_t start_run(const Harness *harness, const Trial *trial, const char *trail, const char *fault);
/* 1 when it has ended in time. */
int await_run(Trial *trial, double until_ms);

/* ---- kill_reference.c */

/* The last line of a text that is an object; NULL: none is. */
json_t     *last_object(const char *text);
uint64_t    number_of(const json_t *object, const char *name);
const char *text_of(const json_t *object, const char *name); /* "" where it has none */
/* 1 when there is one for the trial's shape. */
int make_reference(Harness *harness, Trial *trial);

/* ---- kill_judge.c */

/* Trails of a run that ended early are not there; of one that did not, whole. Anything else is half a file. */
void judge_files(Harness *harness, const Trial *trial, int finished);
/* The launcher and the ranks are a group of their own: nobody of it is left after patience_ms. */
void judge_processes(Harness *harness, const Trial *trial, double patience_ms);
/* What the launcher said at its end. */
void judge_end(Harness *harness, const Trial *trial, const char *out, const char *err);

#endif
