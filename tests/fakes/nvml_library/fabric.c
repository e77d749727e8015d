#include "fakenvml.h"

/* nvml.h: nvmlGpuFabricInfo_t, and the versioned forms _v2_t (36 bytes) and _v3_t (40 bytes) */
typedef struct {
    unsigned char cluster[16];
    u32 status, clique, state;
} Fabric;

typedef struct {
    u32 version;
    Fabric info;
    u32 health_mask;
} FabricV;

API Ret nvmlDeviceGetGpuFabricInfo(void *d, Fabric *f) {
    DEV(d);
    if (c.m || c.g->fabric_state < 0) LEAVE(NOSUP);
    memset(f, 0, sizeof *f);
    f->state = c.g->fabric_state;
    f->status = c.g->fabric_status;
    LEAVE(OK);
}

API Ret nvmlDeviceGetGpuFabricInfoV(void *d, FabricV *f) {
    DEV(d);
    if (f->version != 0x02000024 && f->version != 0x03000028) LEAVE(BADVER);
    if (c.m || c.g->fabric_state < 0) LEAVE(NOSUP);
    memset(&f->info, 0, sizeof f->info);
    f->info.state = c.g->fabric_state;
    f->info.status = c.g->fabric_status;
    f->health_mask = 0;
    LEAVE(OK);
}
