// The vote's quick kernel on a host: blocks of fibers (vote_block.h), one a rank, step by step against the host twins. Arenas, records and outcome
// words must end with the same bytes, whatever the fibers' order; with faults, last steps, room to spare, and peers that are absent.
#include "tests/kernels/vote_block.h"

#include "kernels/vote_quick.h"
#include "tests/kernels/vote_scene.h"

enum { RANKS_MOST = 4 };

template <int RANK> struct Tag { // gives every rank's block an instance, and with it shared memory, of its own
    void at(int) const {}
};

static int failures;

#define EXPECT(condition, ...)                                   \
    do {                                                         \
        if (!(condition) && failures++ < 10) {                   \
            printf("vote_host, line %d: ", __LINE__);            \
            printf(__VA_ARGS__);                                 \
            printf("\n");                                        \
        }                                                        \
    } while (0)

struct Rank {
    KvVoteBoard  board;
    KvVoteArrays arrays;
    uint8_t     *arena, *ahead;
};

struct Machine { // what the kernels work on, beside the model's fleet
    Fleet    fleet;
    uint8_t *blocks;
    Rank     rank[RANKS_MOST];
};

static void machine_open(Machine &machine, const Scene &scene)
{
    fleet_open(&machine.fleet, &scene);
    machine.blocks = (uint8_t *)calloc(scene.ranks, machine.fleet.block_bytes);
    for (uint32_t r = 0; r < scene.ranks; r++) {
        Rank &rank = machine.rank[r];
        rank.board = fleet_board(&machine.fleet, r);
        rank.board.base = machine.blocks;
        rank.arena = (uint8_t *)aligned_alloc(64, machine.fleet.arena_bytes);
        rank.ahead = (uint8_t *)aligned_alloc(16, (kvg_vote_ahead_bytes(scene.entries) + 15) / 16 * 16);
        memcpy(rank.arena, machine.fleet.arena[r], machine.fleet.arena_bytes);
        memset(rank.ahead, 0, kvg_vote_ahead_bytes(scene.entries));
        rank.arrays = scene_arrays(&scene, rank.arena);
        rank.arrays.ahead = rank.ahead;
    }
    kvg_vote_allow(&machine.fleet.control, 5000);
}

static void machine_close(Machine &machine)
{
    for (uint32_t r = 0; r < machine.fleet.scene.ranks; r++) free(machine.rank[r].arena), free(machine.rank[r].ahead);
    free(machine.blocks);
    fleet_close(&machine.fleet);
}

enum What { BOTH, POST, DECIDE };

template <int BLOCK> void run_kernel(const Quick &quick, What what)
{
    if (what == BOTH) quick_kernel(quick, Tag<BLOCK>());
    else if (what == POST) quick_post_kernel(quick, Tag<BLOCK>());
    else quick_decide_kernel(quick, Tag<BLOCK>());
}

static Block block_of(Rank &rank, uint32_t r, uint32_t index, What what)
{
    static void (*const run[2 * RANKS_MOST])(const Quick &, What) = {run_kernel<0>, run_kernel<1>, run_kernel<2>, run_kernel<3>,
                                                                     run_kernel<4>, run_kernel<5>, run_kernel<6>, run_kernel<7>};
    const Quick quick = quick_of(rank.board, rank.arrays);
    Block       block;

    if (!quick_serves(rank.board, rank.arrays)) abort();
    block.threads = quick.threads;
    block.index = index;
    block.body = [quick, r, index, what] { run[2 * r + index](quick, what); };
    return block;
}

enum Order { SIDE_BY_SIDE, FORMS_FIRST, FORMS_LATE }; // when the second blocks run: late is when the first ones have ended

static void run(Machine &machine, uint32_t ranks, uint64_t seed, What what = BOTH, Order order = SIDE_BY_SIDE)
{
    std::vector<Block> exchange, form;
    for (uint32_t r = 0; r < ranks; r++) exchange.push_back(block_of(machine.rank[r], r, 0, what));
    for (uint32_t r = 0; r < ranks && what != POST; r++) (order == SIDE_BY_SIDE ? exchange : form).push_back(block_of(machine.rank[r], r, 1, what));
    if (order == FORMS_FIRST) run_blocks(form, seed);
    run_blocks(exchange, seed);
    if (order == FORMS_LATE) run_blocks(form, seed);
}

// Two kernels where there is more than one stage.
static void run_step(Machine &machine, uint64_t seed)
{
    const Order  order = seed % 7 == 0 ? FORMS_LATE : seed % 3 == 0 ? FORMS_FIRST : SIDE_BY_SIDE;
    const Scene &scene = machine.fleet.scene;

    if (scene.tp == scene.ranks) {
        run(machine, scene.ranks, seed, BOTH, order);
        return;
    }
    run(machine, scene.ranks, seed, POST);
    run(machine, scene.ranks, seed, DECIDE, order);
    run(machine, scene.ranks, seed, DECIDE); // nothing is posted: nothing happens
}

static void take_input(Rank &rank, const uint8_t *arena, const Scene &scene)
{
    const SceneParts at = scene_parts(&scene);
    memcpy(rank.arena + offsetof(KvVoteWords, running), arena + offsetof(KvVoteWords, running), sizeof(KvVoteWords) - offsetof(KvVoteWords, running));
    memcpy(rank.arena + at.accepted, arena + at.accepted, at.taken - at.accepted);
}

static void compare(Machine &machine, uint64_t step)
{
    const Scene &scene = machine.fleet.scene;

    for (uint32_t r = 0; r < scene.ranks; r++) {
        const uint64_t ahead = machine.rank[r].arrays.words->ahead;
        machine.rank[r].arrays.words->ahead = 0; // the model forms nothing ahead
        const uint8_t *seen = machine.rank[r].arena, *expected = machine.fleet.arena[r];
        size_t         byte = 0;
        while (byte < machine.fleet.arena_bytes && seen[byte] == expected[byte]) byte++;
        EXPECT(byte == machine.fleet.arena_bytes, "%u ranks of %u entries, step %llu, rank %u: byte %zu is %u, not %u", scene.ranks, scene.entries,
               (unsigned long long)step, r, byte, seen[byte], expected[byte]);
        machine.rank[r].arrays.words->ahead = ahead;
    }
    size_t at = 0;
    while (at < scene.ranks * machine.fleet.block_bytes && machine.blocks[at] == machine.fleet.blocks[at]) at++;
    EXPECT(at == scene.ranks * machine.fleet.block_bytes, "%u ranks of %u entries, step %llu: byte %zu of the records is %u, not %u", scene.ranks,
           scene.entries, (unsigned long long)step, at % machine.fleet.block_bytes, machine.blocks[at], machine.fleet.blocks[at]);
}

static void acknowledge(Machine &machine)
{
    for (uint32_t r = 0; r < machine.fleet.scene.ranks; r++) {
        scene_acknowledge(machine.fleet.arena[r]);
        scene_acknowledge(machine.rank[r].arena);
    }
}

static bool formed(const Rank &rank, uint64_t step)
{
    const KvVoteAheadHead *head = kvg_vote_ahead_at(rank.ahead, rank.arrays.entries).head;
    return rank.arrays.words->ahead == step && (head->formed[0].step == step || head->formed[1].step == step);
}

static void soak(const Scene &scene, uint64_t steps)
{
    uint64_t quick = 0, stopped = 0;
    Machine  machine;

    machine_open(machine, scene);
    for (uint32_t r = 0; r < scene.ranks && scene.entries > 3; r++) { // there is room for one more
        ((KvVoteWords *)machine.fleet.arena[r])->count = machine.rank[r].arrays.words->count = scene.entries - 1;
    }
    for (uint64_t step = 1; step <= steps; step++) {
        fleet_post(&machine.fleet, step);
        for (uint32_t r = 0; r < scene.ranks; r++) take_input(machine.rank[r], machine.fleet.arena[r], scene);
        fleet_decide(&machine.fleet);
        quick += formed(machine.rank[0], step);
        run_step(machine, step * 977 + scene.seed);
        compare(machine, step);
        stopped += fleet_words(&machine.fleet, 0)->stop != 0;
        acknowledge(machine);
    }
    EXPECT(quick > steps / 5 || scene.all == 0, "%u ranks of %u entries: only %llu of %llu steps were formed ahead", scene.ranks, scene.entries, (unsigned long long)quick, (unsigned long long)steps);
    EXPECT(scene.fault_every == 0 || stopped > 0, "no step was ever stopped");
    machine_close(machine);
}

// A peer that is absent, after steps that were formed ahead: in doubt, by rank; then its record comes.
static void absent(uint32_t ranks)
{
    const Scene scene = {ranks, ranks, 40, 4, 3, 2, 0, 0, 0, 0, 1, 50};
    Machine     machine;

    machine_open(machine, scene);
    for (uint64_t step = 1; step <= 3; step++) {
        const uint32_t come = step < 3 ? ranks : ranks - 1;
        for (uint32_t r = 0; r < ranks; r++) scene_step_input(&scene, r, step, machine.fleet.arena[r]);
        for (uint32_t r = 0; r < ranks; r++) take_input(machine.rank[r], machine.fleet.arena[r], scene);
        run(machine, come, step);
        for (uint32_t r = 0; r < come; r++) {
            KvVoteBoard  board = fleet_board(&machine.fleet, r);
            KvVoteArrays arrays = scene_arrays(&scene, machine.fleet.arena[r]);
            if (kvg_vote_post_ref(&board, &arrays) != KVG_OK) abort();
        }
        for (uint32_t r = 0; r < come; r++) {
            KvVoteBoard  board = fleet_board(&machine.fleet, r);
            KvVoteArrays arrays = scene_arrays(&scene, machine.fleet.arena[r]);
            if (kvg_vote_decide_ref(&board, &arrays) != KVG_OK) abort();
        }
        compare(machine, step);
        if (machine.rank[0].arrays.words->stop == KVG_VOTE_STOP_REPLAY) acknowledge(machine);
    }
    KvVoteWord word = kvg_vote_word(*machine.rank[0].arrays.outcome, 3);
    EXPECT(word.kind == KVG_VOTE_WORD_INDOUBT && word.missing == ranks - 1 && word.step == 3, "kind %d, missing %u", word.kind, word.missing);
    kvg_vote_stop(&machine.fleet.control, 1);
    machine.rank[0].arrays.words->stop = 0;
    run(machine, 1, 9);
    EXPECT(kvg_vote_word(*machine.rank[0].arrays.outcome, 3).kind == KVG_VOTE_WORD_STOPPED, "the stop word did not end a wait");
    machine_close(machine);
}

int main()
{
    //                      ranks tp entries slots columns rows faults one_epoch last unready all seed
    const Scene scenes[] = {{1, 1, 1, 2, 0, 1, 9, 0, 0, 0, 1, 1},       {2, 2, 64, 4, 5, 8, 9, 0, 0, 0, 1, 2}, {2, 2, 256, 8, 0, 4, 9, 0, 13, 0, 1, 3},
                            {3, 3, 33, 4, 3, 70000, 6, 0, 0, 0, 1, 4},  {4, 4, 97, 4, 0, 3, 5, 0, 7, 0, 1, 5}, {2, 2, 31, 4, 0, 8, 0, 0, 0, 0, 1, 6},
                            {2, 1, 64, 8, 5, 8, 9, 0, 0, 0, 1, 7},      {4, 2, 33, 4, 0, 70000, 6, 0, 11, 0, 1, 8}, {3, 1, 130, 4, 3, 3, 5, 0, 0, 0, 1, 9},
                            {2, 2, 66, 4, 3, 8, 9, 0, 0, 0, 0, 10},     {2, 1, 40, 4, 3, 8, 9, 0, 0, 0, 0, 11}};

    for (const Scene &scene : scenes) soak(scene, scene.entries > 200 ? 60 : 150);
    absent(2);
    absent(3);
    printf(failures == 0 ? "ok\n" : "%d failures\n", failures);
    return failures != 0;
}
