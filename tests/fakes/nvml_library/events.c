#include "fakenvml.h"

/* An `event` line is delivered once to every set in which its GPU was registered before the line was there. */
typedef struct {
    Slot *dev;
    int idx;  /* as it was at the registration: a GPU that is lost has none any more */
    u64 last; /* id of the last event delivered, or there before */
} Watched;

typedef struct {
    Watched w[MAXG];
    int n;
} EvSet;

typedef struct {
    Slot *dev;
    u64 type, data;
} EvDataV1;

typedef struct {
    Slot *dev;
    u64 type, data;
    u32 gi, ci;
} EvData;

enum { XID_CRITICAL_ERROR = 8 };

API Ret nvmlEventSetCreate(EvSet **s) {
    ENTER(NULL);
    *s = calloc(1, sizeof **s);
    LEAVE(*s ? OK : UNKNOWN);
}

API Ret nvmlEventSetFree(EvSet *s) {
    ENTER(NULL);
    free(s);
    LEAVE(OK);
}

API Ret nvmlDeviceRegisterEvents(void *d, u64 types, EvSet *s) {
    DEV(d);
    if (types & ~(u64)XID_CRITICAL_ERROR || c.m) LEAVE(NOSUP);
    for (int i = 0; i < s->n; i++)
        if (s->w[i].dev == d) LEAVE(OK);
    if (s->n == MAXG) LEAVE(UNKNOWN);
    Watched *w = &s->w[s->n++];
    *w = (Watched){d, c.g->idx, 0};
    for (int i = 0; i < W.ne; i++)
        if (W.e[i].id > w->last) w->last = W.e[i].id;
    LEAVE(OK);
}

static int next_event(EvSet *s, EvData *out) {
    Event *first = NULL;
    Watched *by = NULL;
    for (int k = 0; k < s->n; k++)
        for (int i = 0; i < W.ne; i++) {
            Event *e = &W.e[i];
            if (e->gpu == s->w[k].idx && e->id > s->w[k].last && (!first || e->id < first->id)) {
                first = e;
                by = &s->w[k];
            }
        }
    if (!first) return 0;
    by->last = first->id;
    *out = (EvData){by->dev, XID_CRITICAL_ERROR, first->xid, first->gi, first->ci};
    return 1;
}

static Ret wait_event(const char *fn, EvSet *s, EvData *out, u32 ms) {
    for (u64 end = now_ms() + ms;; nap(10)) {
        Ctx c;
        Ret r = enter(fn, NULL, &c, -1);
        if (r) LEAVE(r);
        if (next_event(s, out)) LEAVE(OK);
        if (now_ms() >= end) LEAVE(TIMEOUT);
        pthread_mutex_unlock(&rm);
    }
}

API Ret nvmlEventSetWait(EvSet *s, EvDataV1 *out, u32 ms) {
    EvData event;
    Ret r = wait_event(__func__, s, &event, ms);
    if (!r) *out = (EvDataV1){event.dev, event.type, event.data};
    return r;
}

API Ret nvmlEventSetWait_v2(EvSet *s, EvData *out, u32 ms) { return wait_event(__func__, s, out, ms); }
