/* Export: which symbols a user of the shared library may call. Everything else is hidden. */
#ifndef KVG_EXPORT_H
#define KVG_EXPORT_H

#define KVG_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define KVG_BEGIN_DECLS extern "C" {
#define KVG_END_DECLS   }
#else
#define KVG_BEGIN_DECLS
#define KVG_END_DECLS
#endif

#endif
