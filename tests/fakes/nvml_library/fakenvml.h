/* A small fake libnvidia-ml.so.1 for tests. The world is a text file named by $FAKE_NVML_STATE, read again on every
 * call (parsed again only if its bytes changed). One line is one fact; see STATE.md.
 *
 * state.c   reads the world
 * frame.c   what every call does: lock, faults, delays, handles, trace
 * procs.c   process lists and memory
 * fabric.c  NVLink fabric registration
 * events.c  XID events
 * calls.c   everything else */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int Ret;

enum {
    OK = 0,
    UNINIT = 1,
    INVAL = 2,
    NOSUP = 3,
    NOTFOUND = 6,
    SMALL = 7,
    TIMEOUT = 10,
    LOST = 15,
    BADVER = 25,
    UNKNOWN = 999
};

#define AUTO (~0ULL) /* "used" not given: derive it from the processes */
#define NA (~0ULL)   /* NVML_VALUE_NOT_AVAILABLE */

enum { MAXG = 32, MAXM = 128, MAXP = 2048, MAXR = 128, MAXE = 64, MAXS = 256 };

typedef struct {
    int idx;
    char uuid[96], name[96], bus[32];
    u64 total, reserved, used, base;
    int util, temp, power, mig, maxmig, fabric_state, fabric_status; /* -1: not there */
} Gpu;

typedef struct {
    int gpu, idx, gi, ci;
    char uuid[96];
    u64 total, reserved, used;
    char profile[16];
} Mig;

typedef struct {
    int gpu;
    u32 pid;
    char type;
    u64 mem;
    int gi, ci, alive;
    long linger;
} Proc;

typedef struct {
    char fn[80], key[160];
    int gpu, err, hang, lock;
    long ms, times;
} Rule; /* gpu -1: any */

typedef struct {
    u64 id, xid;
    int gpu;
    u32 gi, ci;
} Event;

typedef struct {
    char driver[80], nvml[80], trace[256], say[80];
    int init, stride;
    u64 epoch;
    Gpu g[MAXG];
    Mig m[MAXM];
    Proc p[MAXP];
    Rule r[MAXR];
    Event e[MAXE];
    int ng, nm, np, nr, ne;
} World;

extern World W;            /* guarded by rm */
extern pthread_mutex_t rm; /* stands for the driver's global RM lock */
extern int refs;           /* nvmlInit calls not yet undone */
extern u64 init_epoch;     /* W.epoch as it was at nvmlInit */

typedef struct {
    char uuid[96];
    int mig;
} Slot; /* an nvmlDevice_t points at a Slot; it names a device by UUID */

typedef struct {
    const char *fn;
    Gpu *g;
    Mig *m;
    u64 t0;
} Ctx;

u64 now_ms(void);
void nap(long ms);
void load(void);                                     /* caller holds rm */
Ret enter(const char *fn, Slot *h, Ctx *c, int idx); /* on OK and on error: rm is held, the caller must leave() */
Ret leave(Ctx *c, Ret ret);
Slot *slot(const char *uuid, int mig);
u64 procs_mem(Ctx *c);

#define LEAVE(x) return leave(&c, (x))
#define ENTER(h)                                                                                                       \
    Ctx c;                                                                                                             \
    do {                                                                                                               \
        Ret r_ = enter(__func__, (Slot *)(h), &c, -1);                                                                 \
        if (r_) LEAVE(r_);                                                                                             \
    } while (0)
#define DEV(h)                                                                                                         \
    if (!(h)) return INVAL;                                                                                            \
    ENTER(h)
