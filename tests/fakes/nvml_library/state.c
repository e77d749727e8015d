#include "fakenvml.h"

World W;

u64 now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

void nap(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR);
}

/* ---- state file ---- */
static const char *kv(const char *line, const char *key, char *out, size_t n) { /* key=value or key="a b" */
    size_t k = strlen(key);
    for (const char *s = line; (s = strstr(s, key)); s += k)
        if (s > line && s[-1] == ' ' && s[k] == '=') {
            const char *v = s + k + 1;
            char stop = ' ';
            size_t i = 0;
            if (*v == '"') {
                stop = '"';
                v++;
            }
            while (v[i] && v[i] != stop && i + 1 < n) {
                out[i] = v[i];
                i++;
            }
            out[i] = 0;
            return out;
        }
    return NULL;
}

static u64 num(const char *line, const char *key, u64 dflt) { /* 123, 0x7b, 512K/M/G, na, auto */
    char b[64], *end;
    if (!kv(line, key, b, sizeof b)) return dflt;
    if (!strcmp(b, "na") || !strcmp(b, "auto")) return NA;
    u64 v = strtoull(b, &end, 0);
    return *end == 'G' ? v << 30 : *end == 'M' ? v << 20 : *end == 'K' ? v << 10 : v;
}

static void str(const char *line, const char *key, char *dst, size_t n, const char *dflt) {
    if (!kv(line, key, dst, n) && dflt) snprintf(dst, n, "%.*s", (int)n - 1, dflt);
}

static void parse_line(char *L) {
    char a[80] = "", b[80] = "", c[80] = "", d[80] = "", tmp[96];
    int n = sscanf(L, "%79s %79s %79s %79s", a, b, c, d);
    if (n < 2 || a[0] == '#') return;
    if (!strcmp(a, "system")) {
        str(L, "driver", W.driver, sizeof W.driver, NULL);
        str(L, "nvml", W.nvml, sizeof W.nvml, NULL);
        str(L, "trace", W.trace, sizeof W.trace, "");
        str(L, "say", W.say, sizeof W.say, "");
        W.init = num(L, "init", 0);
        W.epoch = num(L, "epoch", 0);
        W.stride = num(L, "procstride", 24);
    } else if (!strcmp(a, "gpu") && W.ng < MAXG) {
        Gpu *g = &W.g[W.ng++];
        g->idx = atoi(b);
        snprintf(tmp, sizeof tmp, "GPU-%08x-0000-4000-8000-%012x", 0xfa4e0000u + g->idx, g->idx);
        str(L, "uuid", g->uuid, sizeof g->uuid, tmp);
        snprintf(tmp, sizeof tmp, "00000000:%02X:00.0", 0x10 + g->idx);
        str(L, "bus", g->bus, sizeof g->bus, tmp);
        str(L, "name", g->name, sizeof g->name, "NVIDIA Fake GPU");
        g->total = num(L, "total", 80ULL << 30);
        g->reserved = num(L, "reserved", 600ULL << 20);
        g->used = num(L, "used", AUTO);
        g->base = num(L, "base", 0);
        g->util = num(L, "util", 0);
        g->temp = num(L, "temp", 40);
        g->power = num(L, "power", 90000);
        g->mig = num(L, "mig", 0);
        g->maxmig = num(L, "maxmig", 7);
        g->fabric_state = g->fabric_status = -1;
        if (kv(L, "fabric", tmp, sizeof tmp)) sscanf(tmp, "%d:%d", &g->fabric_state, &g->fabric_status);
    } else if (!strcmp(a, "mig") && n >= 3 && W.nm < MAXM) { /* mig GPU INDEX gi= ci= total= */
        Mig *m = &W.m[W.nm++];
        m->gpu = atoi(b);
        m->idx = atoi(c);
        m->gi = num(L, "gi", m->idx + 1);
        m->ci = num(L, "ci", 0);
        snprintf(tmp, sizeof tmp, "MIG-%08x-0000-4000-8000-%012x", 0xfa4e0000u + m->gpu, m->idx);
        str(L, "uuid", m->uuid, sizeof m->uuid, tmp);
        str(L, "profile", m->profile, sizeof m->profile, "1g.10gb");
        m->total = num(L, "total", 10ULL << 30);
        m->reserved = num(L, "reserved", 0);
        m->used = num(L, "used", AUTO);
    } else if (!strcmp(a, "proc") && n >= 3 &&
               W.np < MAXP) { /* proc GPU PID type=C mem= [gi= ci=] [alive=1 linger=MS] */
        Proc *p = &W.p[W.np++];
        p->gpu = atoi(b);
        p->pid = strtoul(c, NULL, 0);
        p->type = kv(L, "type", tmp, sizeof tmp) ? tmp[0] : 'C';
        p->mem = num(L, "mem", 0);
        p->gi = num(L, "gi", NA);
        p->ci = num(L, "ci", NA);
        p->alive = num(L, "alive", 0);
        p->linger = num(L, "linger", 0);
    } else if ((!strcmp(a, "fault") || !strcmp(a, "delay")) && n >= 4 &&
               W.nr < MAXR) { /* fault FN GPU|* CODE ; delay FN GPU|* MS|hang */
        Rule *r = &W.r[W.nr++];
        snprintf(r->fn, sizeof r->fn, "%s", b);
        snprintf(r->key, sizeof r->key, "%s", L);
        r->gpu = c[0] == '*' ? -1 : atoi(c);
        r->times = num(L, "times", 0);
        r->lock = num(L, "lock", 0);
        if (a[0] == 'f')
            r->err = atoi(d);
        else if (!strcmp(d, "hang"))
            r->hang = 1;
        else
            r->ms = atol(d);
    } else if (!strcmp(a, "event") && W.ne < MAXE) { /* event ID gpu= xid= */
        Event *e = &W.e[W.ne++];
        e->id = strtoull(b, NULL, 0);
        e->gpu = num(L, "gpu", 0);
        e->xid = num(L, "xid", 79);
        e->gi = num(L, "gi", NA);
        e->ci = num(L, "ci", NA);
    }
}

void load(void) { /* caller holds rm */
    static char *cur, *buf;
    static ssize_t curlen = -1;

    enum { CAP = 1 << 20 };

    if (!buf) {
        buf = malloc(CAP + 1);
        cur = malloc(CAP + 1);
    }
    const char *path = getenv("FAKE_NVML_STATE");
    ssize_t n = 0, k;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        while (n < CAP && (k = read(fd, buf + n, CAP - n)) > 0) n += k;
        close(fd);
    }
    if (n == curlen && !memcmp(buf, cur, n)) return;
    memcpy(cur, buf, n);
    curlen = n;
    buf[n] = 0;
    memset(&W, 0, sizeof W);
    strcpy(W.driver, "570.86.16");
    strcpy(W.nvml, "12.570.86.16");
    W.stride = 24;
    W.init = fd < 0 ? 9 : 0; /* no file: DRIVER_NOT_LOADED */
    for (char *save, *L = strtok_r(buf, "\n", &save); L; L = strtok_r(NULL, "\n", &save)) parse_line(L);
}
