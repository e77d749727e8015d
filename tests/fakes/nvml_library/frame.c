#include "fakenvml.h"

pthread_mutex_t rm = PTHREAD_MUTEX_INITIALIZER;
int refs;
u64 init_epoch;
static Slot slots[MAXS];
static int nslots;

static struct {
    char key[160];
    long n;
} hits[MAXR];

static int nhits;

/* ---- the call frame: every export runs enter() ... leave() ---- */
static int resolve(Slot *h, Ctx *c) {
    c->g = NULL;
    c->m = NULL;
    if (!h) return OK;
    if (h < slots || h >= slots + nslots) return INVAL;
    int gi = -1;
    if (h->mig) {
        for (int i = 0; i < W.nm; i++)
            if (!strcmp(W.m[i].uuid, h->uuid)) {
                c->m = &W.m[i];
                gi = c->m->gpu;
            }
        if (!c->m) return INVAL;
    }
    for (int i = 0; i < W.ng; i++)
        if (h->mig ? W.g[i].idx == gi : !strcmp(W.g[i].uuid, h->uuid)) c->g = &W.g[i];
    return c->g ? OK : LOST; /* a GPU taken out of the file has fallen off the bus */
}

static int rule_hit(Rule *r) { /* times= counts calls per process and per line text */
    if (!r->times) return 1;
    int i;
    for (i = 0; i < nhits && strcmp(hits[i].key, r->key); i++);
    if (i == nhits) {
        if (nhits == MAXR) return 1;
        strcpy(hits[nhits++].key, r->key);
        hits[i].n = 0;
    }
    return hits[i].n++ < r->times;
}

static void say(void) {
    if (W.say[0] && (puts(W.say) < 0 || fflush(stdout) < 0)) abort();
}

static int rule_applies(Rule *r, const char *fn, Ctx *c, int idx) {
    int g = c->g ? c->g->idx : idx;
    return !fnmatch(r->fn, fn, 0) && (r->gpu < 0 || r->gpu == g);
}

Ret leave(Ctx *c, Ret ret) {
    if (W.trace[0]) {
        char b[200];
        int fd = open(W.trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        int n = snprintf(b, sizeof b, "%llu %d %s %d %d %llu\n", c->t0, getpid(), c->fn, c->g ? c->g->idx : -1, ret,
                         now_ms() - c->t0);
        if (fd >= 0) {
            if (write(fd, b, n) < 0) {}
            close(fd);
        }
    }
    pthread_mutex_unlock(&rm);
    return ret;
}

Ret enter(const char *fn, Slot *h, Ctx *c, int idx) { /* on OK and on error: rm is held, caller must leave() */
    c->fn = fn;
    c->t0 = now_ms();
    pthread_mutex_lock(&rm);
    load();
    say();
    c->g = NULL;
    c->m = NULL;
    int isinit = !strncmp(fn, "nvmlInit", 8);
    if (!isinit && !refs) return UNINIT;
    int e = resolve(h, c);
    if (e == INVAL) return e;
    char keys[8][160];
    int nk = 0; /* delay lines already served in this call */
    for (int i = 0; i < W.nr; i++) {
        Rule *r = &W.r[i];
        int seen = 0;
        for (int k = 0; k < nk; k++) seen |= !strcmp(keys[k], r->key);
        if (seen || r->err || (!r->ms && !r->hang) || !rule_applies(r, fn, c, idx) || !rule_hit(r)) continue;
        char key[160];
        strcpy(key, r->key);
        if (nk < 8) strcpy(keys[nk++], key);
        int hang = r->hang, lock = r->lock;
        long ms = r->ms;
        do { /* a hang ends when its line leaves the file */
            if (!lock) pthread_mutex_unlock(&rm);
            nap(hang ? 10 : ms);
            if (!lock) pthread_mutex_lock(&rm);
            load();
            int still = 0;
            for (int k = 0; k < W.nr; k++) still |= !strcmp(W.r[k].key, key);
            if (!still) hang = 0;
        } while (hang);
        if (!isinit && !refs) return UNINIT;
        e = resolve(h, c);
        if (e == INVAL) return e;
        i = -1; /* the file may have changed: start over */
    }
    for (int i = 0; i < W.nr; i++)
        if (W.r[i].err && rule_applies(&W.r[i], fn, c, idx) && rule_hit(&W.r[i])) return W.r[i].err;
    if (!isinit && strcmp(fn, "nvmlShutdown") && W.epoch != init_epoch)
        return UNKNOWN; /* driver was reloaded: Shutdown + Init needed */
    return e;
}

Slot *slot(const char *uuid, int mig) {
    for (int i = 0; i < nslots; i++)
        if (!strcmp(slots[i].uuid, uuid)) return &slots[i];
    if (nslots == MAXS) return NULL;
    snprintf(slots[nslots].uuid, sizeof slots[0].uuid, "%s", uuid);
    slots[nslots].mig = mig;
    return &slots[nslots++];
}
