#include "fakenvml.h"

static struct {
    u32 pid;
    u64 at;
} dead[MAXP];

static int ndead;

/* ---- processes ---- */
static int pid_dead(u32 pid) {
    char b[512], p[40];
    snprintf(p, sizeof p, "/proc/%u/stat", pid);
    int fd = open(p, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1;
    ssize_t n = read(fd, b, sizeof b - 1);
    close(fd);
    if (n <= 0) return 1;
    b[n] = 0;
    char *s = strrchr(b, ')');
    return s && (s[2] == 'Z' || s[2] == 'X');
}

static int visible(Proc *p) { /* alive=1: bound to a real pid, lingering for linger= ms after its death */
    if (!p->alive || !pid_dead(p->pid)) return 1;
    int i;
    for (i = 0; i < ndead && dead[i].pid != p->pid; i++);
    if (i == ndead && ndead < MAXP) {
        dead[ndead].pid = p->pid;
        dead[ndead++].at = now_ms();
    }
    return i < MAXP && now_ms() - dead[i].at < (u64)p->linger;
}

static int in_scope(Proc *p, Ctx *c) {
    return p->gpu == c->g->idx && (!c->m || (p->gi == c->m->gi && (p->ci == c->m->ci || p->ci < 0)));
}

static int counts(Proc *p, Ctx *c) { return in_scope(p, c) && p->mem != NA && visible(p); }

u64 procs_mem(Ctx *c) { /* a process that is on several lists holds its memory once */
    u64 s = 0;
    for (int i = 0; i < W.np; i++) {
        int again = 0;
        for (int k = 0; k < i && !again; k++)
            again = W.p[k].pid == W.p[i].pid && W.p[k].gi == W.p[i].gi && W.p[k].ci == W.p[i].ci && counts(&W.p[k], c);
        if (counts(&W.p[i], c) && !again) s += W.p[i].mem;
    }
    return s;
}

static Ret list_procs(Ctx *c, const char *types, u32 *count, char *out, int stride) {
    if (!count) return INVAL;
    Proc *v[MAXP];
    u32 n = 0;
    for (int i = 0; i < W.np; i++)
        if (in_scope(&W.p[i], c) && strchr(types, W.p[i].type) && visible(&W.p[i])) v[n++] = &W.p[i];
    u32 room = out ? *count : 0;
    *count = n;
    if (n > room) return SMALL;
    if (n && !out) return INVAL;
    for (u32 i = 0; i < n; i++) {
        char *o = out + (size_t)i * stride;
        memset(o, 0, stride);
        memcpy(o, &v[i]->pid, 4);
        memcpy(o + 8, &v[i]->mem, 8);
        if (stride >= 24) {
            memcpy(o + 16, &v[i]->gi, 4);
            memcpy(o + 20, &v[i]->ci, 4);
        }
    }
    return OK;
}

#define PROCS(fn, types, stride)                                                                                       \
    API Ret fn(void *d, u32 *n, void *out) {                                                                           \
        DEV(d);                                                                                                        \
        LEAVE(list_procs(&c, types, n, out, stride));                                                                  \
    }
PROCS(nvmlDeviceGetComputeRunningProcesses_v3, "CM", W.stride)
PROCS(nvmlDeviceGetGraphicsRunningProcesses_v3, "G", W.stride)
PROCS(nvmlDeviceGetMPSComputeRunningProcesses_v3, "M", W.stride)
PROCS(nvmlDeviceGetComputeRunningProcesses_v2, "CM", 24)
PROCS(nvmlDeviceGetGraphicsRunningProcesses_v2, "G", 24)
PROCS(nvmlDeviceGetMPSComputeRunningProcesses_v2, "M", 24)

/* ---- memory: v1 used = reserved + allocated; v2 splits them ---- */
typedef struct {
    u64 total, free, used;
} Mem1;

typedef struct {
    u32 version;
    u64 total, reserved, free, used;
} Mem2;

static Ret memory(Ctx *c, Mem2 *o) {
    u64 total = c->m ? c->m->total : c->g->total, res = c->m ? c->m->reserved : c->g->reserved,
        used = c->m ? c->m->used : c->g->used;
    if (total == NA) return NOSUP; /* total=na: GB10, Jetson, ... */
    if (used == AUTO) used = procs_mem(c) + (c->m ? 0 : c->g->base);
    o->total = total;
    o->reserved = res;
    o->used = used;
    o->free = total > res + used ? total - res - used : 0;
    return OK;
}

API Ret nvmlDeviceGetMemoryInfo(void *d, Mem1 *m) {
    DEV(d);
    Mem2 o;
    Ret r = memory(&c, &o);
    if (!r) {
        m->total = o.total;
        m->free = o.free;
        m->used = o.used + o.reserved;
    }
    LEAVE(r);
}

API Ret nvmlDeviceGetMemoryInfo_v2(void *d, Mem2 *m) {
    DEV(d);
    LEAVE(m->version == 0x02000028 ? memory(&c, m) : BADVER);
}
