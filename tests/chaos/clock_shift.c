/* Shifts the wall clock of a program, and no other: LD_PRELOAD=clock_shift.so.

   The file TENURE_TEST_CLOCK_FILE holds the shift in microseconds, as one 64 bit integer. It is mapped,
   so whoever writes to it sets the clock while the program runs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TENURE_TEST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shift = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real_clock_gettime(clock, now);
    if (answer || !shift || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return answer;
    int64_t micros = *shift;
    int64_t nanos = now->tv_nsec + (micros % 1000000) * 1000;
    now->tv_sec += micros / 1000000;
    if (nanos < 0) { nanos += 1000000000; now->tv_sec--; }
    if (nanos >= 1000000000) { nanos -= 1000000000; now->tv_sec++; }
    now->tv_nsec = nanos;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (where) *where = precise.tv_sec;
    return precise.tv_sec;
}
