/* ronde.h: the C ABI. Stable: functions and enum values are only ever added.
 *
 * Every function returns a ronde_code (0 is success) unless said otherwise; ronde_last_error() then
 * gives the text, per thread. Nothing throws. Pointers are not owned unless said otherwise. Any
 * thread may call anything. */
#ifndef RONDE_RONDE_H_
#define RONDE_RONDE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define RONDE_ABI_VERSION 1

typedef enum {
  RONDE_OK = 0,
  RONDE_INVALID_ARGUMENT = 1,
  RONDE_MISMATCH = 2,
  RONDE_UNSUPPORTED = 3,
  RONDE_NOT_INITIALIZED = 4,
  RONDE_PEER_LOST = 5,
  RONDE_TIMEOUT = 6,
  RONDE_ABORTED = 7,
  RONDE_OUT_OF_MEMORY = 8,
  RONDE_INTERNAL = 9
} ronde_code;

/* Values as in ronde::DType and ronde::ReduceOp. */
typedef enum {
  RONDE_BOOL = 0,
  RONDE_UINT8 = 1,
  RONDE_INT8 = 2,
  RONDE_INT16 = 3,
  RONDE_INT32 = 4,
  RONDE_INT64 = 5,
  RONDE_FLOAT16 = 6,
  RONDE_BFLOAT16 = 7,
  RONDE_FLOAT32 = 8,
  RONDE_FLOAT64 = 9
} ronde_dtype;
typedef enum {
  RONDE_SUM = 0,
  RONDE_AVERAGE = 1,
  RONDE_MIN = 2,
  RONDE_MAX = 3,
  RONDE_PRODUCT = 4
} ronde_op;

typedef struct ronde_runtime ronde_runtime;
typedef struct ronde_work ronde_work;

/* "0.1.0"; static storage. */
const char* ronde_version(void);
/* Text of this thread's last failure; valid until its next call. */
const char* ronde_last_error(void);

/* Joins the job described by the RONDE_* environment variables; without them a job of size 1. The
 * caller owns *out and ends it with ronde_close. */
ronde_code ronde_open(ronde_runtime** out);
/* Leaves the job and frees; NULL is allowed. */
void ronde_close(ronde_runtime* runtime);
int ronde_rank(const ronde_runtime* runtime);
int ronde_size(const ronde_runtime* runtime);
int ronde_local_rank(const ronde_runtime* runtime);
int ronde_local_size(const ronde_runtime* runtime);

/* Blocking collectives. `name` NULL or "": matched by position. Counts are elements. send and recv
 * must have no memory in common, except that allreduce works in place (send == recv). */
ronde_code ronde_allreduce(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                           ronde_dtype dtype, ronde_op op, const char* name);
/* In place: `buffer` is read on the root and written on the others. */
ronde_code ronde_broadcast(ronde_runtime* runtime, void* buffer, int64_t count, ronde_dtype dtype,
                           int root, const char* name);
/* recv holds size * count elements. */
ronde_code ronde_allgather(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                           ronde_dtype dtype, const char* name);
/* send holds size * recv_count elements. */
ronde_code ronde_reducescatter(ronde_runtime* runtime, const void* send, void* recv,
                               int64_t recv_count, ronde_dtype dtype, ronde_op op,
                               const char* name);
/* send and recv hold size * count elements. */
ronde_code ronde_alltoall(ronde_runtime* runtime, const void* send, void* recv, int64_t count,
                          ronde_dtype dtype, const char* name);
ronde_code ronde_barrier(ronde_runtime* runtime);

/* Non-blocking allreduce. The caller owns *out and ends it with ronde_wait, exactly once. */
ronde_code ronde_allreduce_start(ronde_runtime* runtime, const void* send, void* recv,
                                 int64_t count, ronde_dtype dtype, ronde_op op, const char* name,
                                 ronde_work** out);
/* 1 when done, 0 when not; moves the engine forward by one bounded step. */
int ronde_test(ronde_runtime* runtime, ronde_work* work);
/* Waits, frees the work, returns its outcome. timeout_ms < 0: RONDE_TIMEOUT_S. With timeout_ms >=
 * 0, RONDE_TIMEOUT frees nothing: wait again. */
ronde_code ronde_wait(ronde_runtime* runtime, ronde_work* work, int64_t timeout_ms);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* RONDE_RONDE_H_ */
