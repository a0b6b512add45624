#include "runtime/comm/poll_open.h"

int kvg_poll_open(struct pollfd *polls, size_t count, int timeout_ms)
{
    struct pollfd *packed = polls + count;
    nfds_t         open = 0;

    for (size_t i = 0; i < count; i++) {
        polls[i].revents = 0;
        if (polls[i].fd >= 0) {
            packed[open++] = polls[i];
        }
    }
    int ready = poll(packed, open, timeout_ms);

    for (size_t i = 0, at = 0; ready > 0 && i < count; i++) {
        if (polls[i].fd >= 0) {
            polls[i].revents = packed[at++].revents;
        }
    }
    return ready;
}
