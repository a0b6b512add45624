/* Shared segments: sealed memory without a name, and the door at which it is handed over. Private.
 *
 * A door is a listening socket in the abstract Unix name space. Who holds the segment reads nothing from its callers: it looks at their uid, which
 * the kernel vouches for, and hands the descriptor over. So nobody can keep it waiting. */
#ifndef KVG_SHM_SEGMENT_H
#define KVG_SHM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

#define KVG_SHM_NAME_MAX 64

typedef struct ShmDoor {
    int  fd; /* -1: closed */
    char last_stranger[96]; /* who was turned away, "" nobody */
} ShmDoor;

/* Zeroed memory of fixed size; *fd is closed on exec. */
KvgStatus kvg_shm_segment_create(size_t bytes, int *fd);
/* Maps a segment whole, whoever made it: *bytes is its size. EINVAL: `fd` is no such segment, or another could change its size. */
KvgStatus kvg_shm_segment_map(int fd, void **memory, size_t *bytes);
void      kvg_shm_segment_unmap(void *memory, size_t bytes); /* NULL is allowed */

/* Holds the name until the door is closed. EINVAL naming who holds it. */
KvgStatus kvg_shm_door_open(const char *name, ShmDoor *door);
/* Serves every caller that waits now. Never blocks. */
void kvg_shm_door_serve(ShmDoor *door, int segment);
void kvg_shm_door_close(ShmDoor *door);
/* The segment from the door of that name, which may open until the deadline. EINVAL another user's; EINDOUBT nobody has opened it. */
KvgStatus kvg_shm_door_call(const char *name, uint64_t deadline_ns, int *segment);

#endif
