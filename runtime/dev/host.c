/* Host device: ranges are mmap reservations, backed and given back in place.
 *
 *   reserve    PROT_NONE, MAP_NORESERVE: addresses only, not accounted
 *   extend     MAP_FIXED over [taken, bytes), read and write, accounted: a plain overcommit is refused here, not at first touch
 *   give_back  MAP_FIXED over [bytes, taken), PROT_NONE again: the pages are gone from /proc/self/maps as read-write
 *
 * Allocations are mappings too, with a header in front, so that `taken` is exactly what the system shows.
 * Everything is done when a call returns; streams and events mean nothing. */
#include "runtime/dev/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define HOST_PAGE  ((size_t)4096)
#define HOST_ALIGN 256

typedef struct HostDev {
    uint64_t taken;
    KvMemory memory; /* alloc NULL: the system's */
} HostDev;

typedef struct HostBlock { /* in front of every allocation */
    size_t mapped;
} HostBlock;

_Static_assert(sizeof(HostBlock) <= HOST_ALIGN, "the header fits in front of the first aligned byte");

static size_t page_round(size_t bytes)
{
    return (bytes + HOST_PAGE - 1) & ~(HOST_PAGE - 1);
}

/* ---- why a mapping failed */

static uint64_t mappings_in_use(void)
{
    char     piece[4096];
    uint64_t lines = 0;
    ssize_t  got;
    int      file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (file < 0) return 0;
    while ((got = read(file, piece, sizeof piece)) > 0) {
        for (ssize_t i = 0; i < got; i++) lines += piece[i] == '\n';
    }
    close(file);
    return lines;
}

static uint64_t mappings_allowed(void)
{
    char    text[32] = "";
    int     file = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (file < 0) return UINT64_MAX;
    got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static KvgStatus fail_mapping(const char *act, size_t bytes, int error)
{
    uint64_t used = mappings_in_use();
    uint64_t allowed = mappings_allowed();

    if (error == ENOMEM && allowed != UINT64_MAX && used + 2 >= allowed) {
        return kvg_fail(KVG_ENOMEM, "cannot %s %zu bytes of host memory: %" PRIu64 " of %" PRIu64 " mappings are in use; "
                        "raise vm.max_map_count (sysctl -w vm.max_map_count=%" PRIu64 "), or use the pool layout",
                        act, bytes, used, allowed, allowed * 4);
    }
    return kvg_fail(KVG_ENOMEM, "cannot %s %zu bytes of host memory: %s; free memory, ask for less, or raise the limit "
                    "(ulimit -v, the memory limit of the job)", act, bytes, strerror(error));
}

/* Maps [address, address + bytes), or anywhere for NULL; MAP_FAILED and errno. */
static void *remap(void *address, size_t bytes, int backed)
{
    int protection = backed ? PROT_READ | PROT_WRITE : PROT_NONE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (backed ? 0 : MAP_NORESERVE) | (address != NULL ? MAP_FIXED : 0);

    errno = ENOMEM;
    return kvg_fault_hit() ? MAP_FAILED : mmap(address, bytes, protection, flags, -1, 0);
}

static KvgStatus map(void *address, size_t bytes, int backed, const char *act, void **mapped)
{
    void *fresh = remap(address, bytes, backed);

    if (fresh == MAP_FAILED) return fail_mapping(act, bytes, errno);
    *mapped = fresh;
    return KVG_OK;
}

/* ---- memory */

static KvgStatus ask_engine(const HostDev *host, size_t bytes, void **memory)
{
    void *fresh = kvg_fault_hit() ? NULL : host->memory.alloc(host->memory.user, bytes);

    if (fresh == NULL) return kvg_fail(KVG_ENOMEM, "the engine's allocator gave none of %zu bytes of host memory; lower the placement's memory", bytes);
    if ((uintptr_t)fresh % HOST_ALIGN != 0) {
        host->memory.free(host->memory.user, fresh, bytes);
        return kvg_fail(KVG_EINVAL, "the engine's allocator gave %zu bytes at %p: it must align them to %d", bytes, fresh, HOST_ALIGN);
    }
    memset(fresh, 0, bytes);
    *memory = fresh;
    return KVG_OK;
}

static KvgStatus host_zeros(void *self, size_t bytes, void **memory)
{
    HostDev *host = self;
    uint64_t whole;
    void    *fresh = NULL;

    if (!kvg_add_u64(bytes, HOST_ALIGN + HOST_PAGE, &whole)) {
        return kvg_fail(KVG_EOVERFLOW, "an allocation of %zu bytes: past 64 bits", bytes);
    }
    size_t size = host->memory.alloc != NULL ? bytes + HOST_ALIGN : page_round(bytes + HOST_ALIGN);
    KVG_TRY(host->memory.alloc != NULL ? ask_engine(host, size, &fresh) : map(NULL, size, 1, "allocate", &fresh));
    ((HostBlock *)fresh)->mapped = size;
    host->taken += size;
    *memory = (uint8_t *)fresh + HOST_ALIGN;
    return KVG_OK;
}

static void host_free(void *self, void *memory)
{
    HostDev *host = self;

    if (memory == NULL) return;
    HostBlock *block = (HostBlock *)(void *)((uint8_t *)memory - HOST_ALIGN);
    size_t     size = block->mapped;
    host->taken -= size;
    if (host->memory.alloc != NULL) {
        host->memory.free(host->memory.user, block, size);
    } else {
        KVG_ASSERT(munmap(block, size) == 0);
    }
}

static size_t host_granularity(void *self)
{
    (void)self;
    return HOST_PAGE;
}

static KvgStatus host_reserve(void *self, size_t bytes, KvRange *range)
{
    void *mapped = NULL;

    (void)self;
    if (bytes == 0 || bytes > SIZE_MAX - HOST_PAGE) {
        return kvg_fail(KVG_EINVAL, "a range of %zu bytes cannot be reserved; ask for 1 byte to 2^47", bytes);
    }
    KVG_TRY(map(NULL, page_round(bytes), 0, "reserve addresses for", &mapped));
    *range = (KvRange){.base = mapped, .reserved = page_round(bytes), .taken = 0};
    return KVG_OK;
}

static KvgStatus host_extend(void *self, KvRange *range, size_t bytes)
{
    HostDev *host = self;
    void    *mapped;

    if (bytes > range->reserved) {
        return kvg_fail(KVG_ECAPACITY, "a range of %zu reserved bytes cannot be extended to %zu; reserve more", range->reserved,
                        bytes);
    }
    size_t wanted = page_round(bytes);
    if (wanted <= range->taken) return KVG_OK;
    KVG_TRY(map(range->base + range->taken, wanted - range->taken, 1, "extend a range by", &mapped));
    host->taken += wanted - range->taken;
    range->taken = wanted;
    return KVG_OK;
}

static KvgStatus host_give_back(void *self, KvRange *range, size_t bytes)
{
    HostDev *host = self;
    size_t   kept = page_round(bytes);

    if (kept >= range->taken) return KVG_OK;
    if (remap(range->base + kept, range->taken - kept, 0) == MAP_FAILED) { /* maybe one of thousands, where addresses are short: not looked into */
        return kvg_fail(KVG_ENOMEM, "cannot give back %zu bytes of host memory, which stay taken: %s", range->taken - kept, strerror(errno));
    }
    host->taken -= range->taken - kept;
    range->taken = kept;
    return KVG_OK;
}

static void host_release(void *self, KvRange *range)
{
    HostDev *host = self;

    if (range->base == NULL) return;
    KVG_ASSERT(munmap(range->base, range->reserved) == 0);
    host->taken -= range->taken;
    *range = (KvRange){0};
}

static uint64_t host_taken_bytes(void *self)
{
    return ((HostDev *)self)->taken;
}

static KvgStatus host_available(void *self, KvAvailable *available)
{
    if (((HostDev *)self)->memory.alloc != NULL) {
        return kvg_fail(KVG_ENOTSUP, "what the engine's allocator has left is not known: say how many bytes to take (memory_bytes)");
    }
    return kvg_host_available(available);
}

/* ---- copies */

static KvgStatus host_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    (void)self;
    (void)stream;
    if (bytes > 0) memmove(target, source, bytes);
    return KVG_OK;
}

static KvgStatus host_set_i32_one(void *self, int32_t *target, int32_t value, KvgStream stream)
{
    (void)self;
    (void)stream;
    *target = value;
    return KVG_OK;
}

/* ---- streams and events */

static KvgStatus host_synchronize(void *self, KvgStream stream)
{
    (void)self;
    (void)stream;
    return KVG_OK;
}

static KvgStatus host_event_create(void *self, KvEvent *event)
{
    *event = self; /* any value: events say nothing here */
    return KVG_OK;
}

static void host_event_destroy(void *self, KvEvent event)
{
    (void)self;
    (void)event;
}

static KvgStatus host_event_record(void *self, KvEvent event, KvgStream stream)
{
    (void)self;
    (void)event;
    (void)stream;
    return KVG_OK;
}

static KvgStatus host_stream_wait(void *self, KvgStream stream, KvEvent event)
{
    (void)self;
    (void)stream;
    (void)event;
    return KVG_OK;
}

/* ---- rows */

static size_t encoded_bytes(KvFormat format, uint64_t elements)
{
    uint32_t block = kvg_format_block_elements(format);

    KVG_ASSERT(block != 0 && elements % block == 0);
    return (size_t)(elements / block * kvg_format_block_bytes(format));
}

/* Heads or tokens that stand side by side on both sides are encoded in one go: blocks never span heads, so the bytes are equal. */
static KvgStatus host_encode_rows(void *self, KvFormat format, const KvRowsIn *in, KvRowsAt at, uint32_t heads, uint32_t dim,
                                  uint32_t rows, KvEncodeCounts *counts, KvgStream stream)
{
    const uint8_t *data = in->data;
    int64_t        element = kvg_format_block_bytes(in->type);
    size_t         run = dim;

    (void)self;
    (void)stream;
    if (in->head_stride == (int64_t)dim && at.head_stride == encoded_bytes(format, dim)) {
        run = (size_t)heads * dim;
        heads = 1;
    }
    if (heads == 1 && in->token_stride == (int64_t)run && at.row_stride == encoded_bytes(format, run)) {
        run *= rows;
        rows = rows > 0;
    }
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t head = 0; head < heads; head++) {
            const uint8_t *source = data + ((int64_t)row * in->token_stride + (int64_t)head * in->head_stride) * element;
            kvg_encode(format, in->type, source, run, at.target + row * at.row_stride + head * at.head_stride, counts);
        }
    }
    return KVG_OK;
}

static KvgStatus host_decode_rows(void *self, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows,
                                  float *target, KvgStream stream)
{
    (void)self;
    (void)stream;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t head = 0; head < heads; head++) {
            kvg_decode_f32(format, at.target + row * at.row_stride + head * at.head_stride, dim,
                           target + ((size_t)row * heads + head) * dim);
        }
    }
    return KVG_OK;
}

static void host_close(void *self)
{
    kvg_free(self);
}

#define HOST_COMMON_OPS                                                                                              \
    .direct = 1, .zeros = host_zeros, .uninit = host_zeros, .free = host_free, .granularity = host_granularity,      \
    .taken_bytes = host_taken_bytes, .htod = host_move, .dtoh = host_move, .move = host_move,                        \
    .set_i32_one = host_set_i32_one, .synchronize = host_synchronize, .event_create = host_event_create,             \
    .event_destroy = host_event_destroy, .event_record = host_event_record, .stream_wait = host_stream_wait,         \
    .encode_rows = host_encode_rows, .decode_rows = host_decode_rows, .available = host_available, .close = host_close

static const KvDevOps host_ops = {
    .name = "host", .reserve = host_reserve, .extend = host_extend, .give_back = host_give_back, .release = host_release,
    HOST_COMMON_OPS,
};

static const KvDevOps host_plain_ops = {.name = "host_plain", HOST_COMMON_OPS};
static const KvDevOps host_memory_ops = {.name = "host_memory", HOST_COMMON_OPS};

static KvgStatus open_host(const KvDevOps *ops, const KvMemory *memory, KvDev *dev)
{
    HostDev *host = NULL;

    KVG_TRY(KVG_NEW(1, "the host device", &host));
    if (memory != NULL) host->memory = *memory;
    *dev = (KvDev){.ops = ops, .self = host};
    return KVG_OK;
}

KvgStatus kvg_dev_host(KvDev *dev)
{
    return open_host(&host_ops, NULL, dev);
}

KvgStatus kvg_dev_host_plain(KvDev *dev)
{
    return open_host(&host_plain_ops, NULL, dev);
}

KvgStatus kvg_dev_host_memory(const KvMemory *memory, KvDev *dev)
{
    if (memory == NULL || memory->alloc == NULL || memory->free == NULL || dev == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_dev_host_memory needs an allocator's alloc and free, and a place for the device");
    }
    return open_host(&host_memory_ops, memory, dev);
}
