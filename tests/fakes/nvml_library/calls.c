#include "fakenvml.h"

/* ---- init, system ---- */
API Ret nvmlInitWithFlags(u32 flags) {
    (void)flags;
    Ctx c;
    Ret r = enter(__func__, NULL, &c, -1);
    if (r) LEAVE(r);
    if (W.init) LEAVE(W.init);
    if (!refs) init_epoch = W.epoch;
    refs++;
    LEAVE(OK);
}

API Ret nvmlShutdown(void) {
    ENTER(NULL);
    refs--;
    LEAVE(OK);
}

API const char *nvmlErrorString(Ret r) {
    static __thread char b[40];
    snprintf(b, sizeof b, "fake error %d", r);
    return b;
}

static Ret put(char *dst, u32 n, const char *s) {
    if (!dst) return INVAL;
    if (strlen(s) >= n) return SMALL;
    strcpy(dst, s);
    return OK;
}

API Ret nvmlSystemGetDriverVersion(char *v, u32 n) {
    ENTER(NULL);
    LEAVE(put(v, n, W.driver));
}

API Ret nvmlSystemGetNVMLVersion(char *v, u32 n) {
    ENTER(NULL);
    LEAVE(put(v, n, W.nvml));
}

/* ---- device lookup and identity ---- */
API Ret nvmlDeviceGetCount_v2(u32 *n) {
    ENTER(NULL);
    *n = W.ng;
    LEAVE(OK);
}

API Ret nvmlDeviceGetHandleByIndex_v2(u32 i, Slot **h) {
    Ctx c;
    Ret r = enter(__func__, NULL, &c, i);
    if (r) LEAVE(r);
    for (int k = 0; k < W.ng; k++)
        if (W.g[k].idx == (int)i) {
            *h = slot(W.g[k].uuid, 0);
            LEAVE(*h ? OK : UNKNOWN);
        }
    LEAVE(INVAL);
}

API Ret nvmlDeviceGetUUID(void *d, char *v, u32 n) {
    DEV(d);
    LEAVE(put(v, n, ((Slot *)d)->uuid));
}

API Ret nvmlDeviceGetName(void *d, char *v, u32 n) {
    DEV(d);
    if (!c.m) LEAVE(put(v, n, c.g->name));
    char name[128];
    snprintf(name, sizeof name, "%s MIG %s", c.g->name, c.m->profile);
    LEAVE(put(v, n, name));
}

typedef struct {
    char legacy[16];
    u32 domain, bus, device, id, subid;
    char busid[32];
} Pci;

API Ret nvmlDeviceGetPciInfo_v3(void *d, Pci *p) {
    DEV(d);
    memset(p, 0, sizeof *p);
    snprintf(p->busid, sizeof p->busid, "%s", c.g->bus);
    snprintf(p->legacy, sizeof p->legacy, "%s", c.g->bus + 4);
    sscanf(c.g->bus, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    p->id = 0x233010de;
    LEAVE(OK);
}

/* ---- gauges ---- */
typedef struct {
    u32 gpu, mem;
} Util;

API Ret nvmlDeviceGetPowerUsage(void *d, u32 *v) {
    DEV(d);
    if (c.g->power < 0) LEAVE(NOSUP);
    *v = c.g->power;
    LEAVE(OK);
}

API Ret nvmlDeviceGetTemperature(void *d, u32 s, u32 *v) {
    DEV(d);
    (void)s;
    if (c.g->temp < 0) LEAVE(NOSUP);
    *v = c.g->temp;
    LEAVE(OK);
}

API Ret nvmlDeviceGetUtilizationRates(void *d, Util *u) {
    DEV(d);
    if (c.m || c.g->mig || c.g->util < 0) LEAVE(NOSUP);
    u->gpu = c.g->util;
    u->mem = 0;
    LEAVE(OK);
}

/* ---- MIG ---- */
API Ret nvmlDeviceGetMigMode(void *d, u32 *cur, u32 *pend) {
    DEV(d);
    if (c.g->mig < 0) LEAVE(NOSUP);
    *cur = *pend = c.g->mig;
    LEAVE(OK);
}

API Ret nvmlDeviceGetMaxMigDeviceCount(void *d, u32 *n) {
    DEV(d);
    *n = c.g->mig > 0 ? c.g->maxmig : 0;
    LEAVE(OK);
}

API Ret nvmlDeviceGetMigDeviceHandleByIndex(void *d, u32 i, Slot **h) {
    DEV(d);
    for (int k = 0; k < W.nm; k++)
        if (W.m[k].gpu == c.g->idx && W.m[k].idx == (int)i) {
            *h = slot(W.m[k].uuid, 1);
            LEAVE(*h ? OK : UNKNOWN);
        }
    LEAVE(NOTFOUND);
}

API Ret nvmlDeviceGetGpuInstanceId(void *d, u32 *v) {
    DEV(d);
    if (!c.m) LEAVE(INVAL);
    *v = c.m->gi;
    LEAVE(OK);
}

API Ret nvmlDeviceGetComputeInstanceId(void *d, u32 *v) {
    DEV(d);
    if (!c.m) LEAVE(INVAL);
    *v = c.m->ci;
    LEAVE(OK);
}
