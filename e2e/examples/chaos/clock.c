/* Lets the wall clock of one process jump: adds the seconds in the file $CHAOS_CLOCK, which may change any time, to
   CLOCK_REALTIME. Preloaded into a scheduler; its monotonic clock stays as it is. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset;

__attribute__((constructor)) static void find_offset(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) offset = page;
  close(file);
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int result = (int)syscall(SYS_clock_gettime, id, time);
  if (result == 0 && id == CLOCK_REALTIME && offset) time->tv_sec += *offset;
  return result;
}
