/* Doctor, the host's checks: memory, addresses, cores. Private. */
#ifndef KVG_COMMAND_DOCTOR_HOST_H
#define KVG_COMMAND_DOCTOR_HOST_H

typedef enum Verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL } Verdict;

#define FINDING_MOST 640

typedef struct Finding {
    Verdict verdict;
    char    text[FINDING_MOST]; /* what was found; beside warn and FAIL the cure */
} Finding;

/* Writes a finding as printf does. */
void kvg_finding(Finding *finding, Verdict verdict, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prints it as a line; 1: it is a FAIL. */
int kvg_finding_print(const Finding *finding, const char *name);

void kvg_doctor_proc(Finding *finding);
void kvg_doctor_memory(Finding *finding);
void kvg_doctor_addresses(Finding *finding);
void kvg_doctor_maps(Finding *finding);
void kvg_doctor_cores(Finding *finding);
void kvg_doctor_topology(Finding *finding);
void kvg_doctor_avx2(Finding *finding);

#endif
