/* Faults: what becomes of records and messages, and when ranks die or freeze. */
#include "tests/simulate/sim.h"

static int planted(World *w, uint32_t one_in)
{
    return one_in != 0 && chance(&w->wire, one_in);
}

KvInprocFate fault_filter(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns)
{
    World *w = user;

    (void)to;
    (void)bytes;
    (void)byte_count;
    if (w->tear_rank == from && w->tear_left-- <= 0) {
        return KVG_INPROC_DROP; /* it is dying in the middle of its sends; fault_turn kills it */
    }
    if (!w->faulty) {
        return KVG_INPROC_DELIVER;
    }
    if (planted(w, w->faults.shake)) {
        if (chance(&w->wire, 2)) {
            return KVG_INPROC_DUPLICATE;
        }
        *delay_ns = draw(&w->wire, 20) * SIM_MS / 2;
        return KVG_INPROC_DELAY;
    }
    if (is_record && planted(w, w->faults.drop)) {
        w->patient = 1;
        return KVG_INPROC_DROP;
    }
    if (is_record ? planted(w, w->faults.late) : planted(w, w->faults.message_late * (uint32_t)w->ranks)) {
        w->patient = 1;
        *delay_ns = SIM_DEADLINE_NS / 2 + draw(&w->wire, 3 * SIM_TIMEOUT_MS) * SIM_MS;
        return KVG_INPROC_DELAY;
    }
    return KVG_INPROC_DELIVER;
}

void fault_kill(World *w, int r)
{
    for (int h = 0; h < w->hub_count; h++) kvg_inproc_kill(w->hubs[h], r);
    w->rank[r].dead = 1;
    w->losses++;
    if (w->tear_rank == r) {
        w->tear_rank = -1;
    }
}

static int living(const World *w)
{
    int count = 0;

    for (int r = 0; r < w->ranks; r++) count += rank_lives(&w->rank[r]) && !w->rank[r].frozen;
    return count;
}

/* Now and then between two turns of the ranks. */
void fault_turn(World *w)
{
    if (w->tear_rank >= 0 && w->tear_left <= 0) {
        fault_kill(w, w->tear_rank);
    }
    if (w->life_step >= w->stretch_end) {
        w->faulty = !w->faulty;
        w->stretch_end = w->life_step + 50 + draw(&w->wire, 300);
    }
    if (!w->faulty || w->ranks == 1 || living(w) < 2) {
        return;
    }
    uint32_t r = draw(&w->wire, (uint32_t)w->ranks);
    if (!rank_lives(&w->rank[r]) || w->rank[r].frozen) {
        return;
    }
    if (planted(w, w->faults.kill)) {
        fault_kill(w, (int)r);
    } else if (w->tear_rank < 0 && planted(w, w->faults.tear)) {
        w->tear_rank = (int)r;
        w->tear_left = (int)draw(&w->wire, 2 * (uint32_t)w->ranks);
    } else if (planted(w, w->faults.freeze)) {
        w->rank[r].frozen = 1;
        world_freeze(w, (int)r, 1);
    }
}
