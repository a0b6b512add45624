/* HD: marks plain functions that host and device compile from the same text. Private. */
#ifndef KVG_BASE_HD_H
#define KVG_BASE_HD_H

#ifdef __CUDACC__
#define KVG_HD __host__ __device__
#else
#define KVG_HD
#endif

#endif
