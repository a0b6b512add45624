/** Status codes and the last error.
 *
 * Every fallible call returns a KvgStatus. The codes are numbered as listed and cross the wire in vote
 * records, so their values never change. A call that fails also leaves one full sentence with the values
 * and the cure in this thread's kvg_last_error(). */
#ifndef KVG_STATUS_H
#define KVG_STATUS_H

#include <kvgrid/export.h>

KVG_BEGIN_DECLS

typedef enum KvgStatus {
    KVG_OK        = 0,
    KVG_EINVAL    = 1,  /* a bad argument; nothing changed */
    KVG_EGEOM     = 2,  /* the model cannot be sharded that way */
    KVG_EOVERFLOW = 3,  /* a size does not fit its type */
    KVG_ENOMEM    = 4,  /* memory of the host or device is out */
    KVG_ECAPACITY = 5,  /* past what is booked, or past the model's context */
    KVG_EBUSY     = 6,  /* something is open, undecided or not fresh */
    KVG_ESTALE    = 7,  /* not the current one */
    KVG_ELAPPED   = 8,  /* those rows are no longer held */
    KVG_ENOFIT    = 9,  /* an append larger than a ring can take */
    KVG_ELAYOUT   = 10, /* two sides disagree */
    KVG_ETAINTED  = 11, /* state that is not provably intact */
    KVG_EREFUSED  = 12, /* a rank voted no; the step was rolled back everywhere */
    KVG_EINDOUBT  = 13, /* undecided at the deadline */
    KVG_EPEER     = 14, /* a rank is gone */
    KVG_EDEVICE   = 15, /* the device reported an error */
    KVG_EIO       = 16, /* a file or socket operation failed */
    KVG_EFORMAT   = 17, /* malformed input */
    KVG_ENOTSUP   = 18, /* named, known, and not available here */
    KVG_STATUS_COUNT
} KvgStatus;

/** "OK", "EINVAL", ...: the code's name without its prefix; "?" outside the range. Static storage. */
KVG_API const char *kvg_status_name(KvgStatus status);

/** This thread's latest failure as one sentence, "" before any. Valid until this thread's next failing call. */
KVG_API const char *kvg_last_error(void);

KVG_END_DECLS
#endif
