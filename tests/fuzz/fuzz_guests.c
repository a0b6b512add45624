/* Guests: who comes to rank 0 of a TCP rendezvous, and what they send: any bytes, in pieces, or what a sound guest says with some of it changed. However
 * they behave, no rank has two holders, no unknown one a place, and rank 0 keeps no more than its chairs. */
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/rendezvous_internal.h"
#include "tests/fuzz/fuzz.h"

#define RANKS      4
#define GUESTS_MAX 48 /* more than there are chairs */
#define ACTS_MAX   400
#define BYTES_MAX  ((uint64_t)64 << 10)

typedef struct World {
    Rendezvous self;
    RvParty    party;
    int        far[GUESTS_MAX]; /* the guests' ends */
    int        count;
} World;

static RvGuest *guest_at(World *world, uint8_t which)
{
    return &world->party.guests[which % world->party.guest_count];
}

static int far_end(const World *world, uint8_t which)
{
    return world->count > 0 ? world->far[which % world->count] : -1;
}

static void come(World *world)
{
    int ends[2];

    if (world->count == GUESTS_MAX) {
        return;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    world->far[world->count++] = ends[1];
    kvg_rv_party_admit(&world->party, ends[0], "here");
}

static void send_bytes(const World *world, FuzzInput *input)
{
    int    fd = far_end(world, fuzz_u8(input));
    size_t count = fuzz_u8(input);

    count = count < input->left ? count : input->left;
    if (fd != -1) {
        (void)!send(fd, input->at, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    input->at += count;
    input->left -= count;
}

/* A frame of a sound size; its content and header are the input's where it says so. */
static void say(int fd, RvKind kind, void *payload, size_t bytes, FuzzInput *input)
{
    RvHeader header = kvg_rv_header(kind, bytes);
    uint8_t  how = fuzz_u8(input);
    size_t   sent = 0;

    header.left_ms = fuzz_u16(input);
    if (how & 1) {
        ((uint8_t *)&header)[fuzz_u8(input) % sizeof header] ^= fuzz_u8(input);
    }
    if (how & 2) {
        ((uint8_t *)payload)[fuzz_u8(input) % bytes] ^= fuzz_u8(input);
    }
    if (fd != -1 && (header.bytes == bytes)) {
        (void)kvg_rv_send_on(fd, &header, payload, &sent);
    } else if (fd != -1) {
        (void)!send(fd, &header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void say_hello(const World *world, FuzzInput *input)
{
    int     fd = far_end(world, fuzz_u8(input));
    RvHello hello = { .version = RV_VERSION, .rank = (int8_t)fuzz_u8(input) % (RANKS + 1), .ranks = RANKS };

    say(fd, RV_HELLO, &hello, sizeof hello, input);
}

/* The right proof of some chair's guest, said at some connection. */
static void say_proof(World *world, FuzzInput *input)
{
    const RvGuest *guest = guest_at(world, fuzz_u8(input));
    int            fd = far_end(world, fuzz_u8(input));
    RvProof        proof;

    kvg_rv_prove(&world->self, &guest->hello, &guest->challenge, -1, proof.mac);
    say(fd, RV_PROOF, &proof, sizeof proof, input);
}

static void hear_all(World *world)
{
    for (int i = 0; i < world->party.guest_count; i++) {
        if (world->party.guests[i].state != GUEST_NONE) {
            kvg_rv_party_hear(&world->party, &world->party.guests[i]);
        }
    }
}

static void check(const World *world)
{
    int known = 0, holders[RANKS] = { 0 };

    for (int i = 0; i < world->party.guest_count; i++) {
        const RvGuest *guest = &world->party.guests[i];

        FUZZ_CHECK((guest->state == GUEST_NONE) == (guest->link.fd == -1));
        if (guest->state == GUEST_KNOWN) {
            uint8_t mac[KVG_HMAC_BYTES];

            known++;
            FUZZ_CHECK(guest->hello.version == RV_VERSION && guest->hello.ranks == RANKS);
            FUZZ_CHECK(guest->hello.rank == KVG_RENDEZVOUS_ANY_RANK || (guest->hello.rank >= 1 && guest->hello.rank < RANKS));
            FUZZ_CHECK(guest->hello.rank == KVG_RENDEZVOUS_ANY_RANK || holders[guest->hello.rank]++ == 0);
            kvg_rv_prove(&world->self, &guest->hello, &guest->challenge, -1, mac);
            FUZZ_CHECK(kvg_hmac_equal(mac, guest->link.in.proof.mac));
        }
    }
    FUZZ_CHECK(known <= RANKS - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput input = { data, size };
    World     world = { .self = { .ranks = RANKS, .secret = "a secret of enough bytes", .secret_bytes = 24 } };
    FuzzCount count = fuzz_begin();

    FUZZ_CHECK(kvg_rv_party_new(&world.self, &world.party) == KVG_OK);
    for (int act = 0; act < ACTS_MAX && input.left > 0; act++) {
        uint8_t what = fuzz_u8(&input);

        switch (what % 6) {
        case 0: come(&world); break;
        case 1: send_bytes(&world, &input); break;
        case 2: say_hello(&world, &input); break;
        case 3: say_proof(&world, &input); break;
        case 4: hear_all(&world); break;
        default:
            if (world.count > 0) shutdown(far_end(&world, fuzz_u8(&input)), SHUT_RDWR);
            break;
        }
        check(&world);
    }
    hear_all(&world);
    check(&world);
    kvg_rv_party_free(&world.party);
    for (int i = 0; i < world.count; i++) {
        close(world.far[i]);
    }
    fuzz_end(&count, size, 0, BYTES_MAX);
    return 0;
}
