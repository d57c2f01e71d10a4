/* A driver library in a box: the functions of NVML that kvcanary calls, over four made-up GPUs.

   GPU 0  as it should be
   GPU 1  has 8 GiB less memory than its siblings
   GPU 2  has XID errors 79 and 48 while it is watched, uncorrectable ECC errors, a failed row remap
   GPU 3  runs a stranger's process, and is divided (MIG)

   With -DOLD an older driver: no memory of the second version, no remapped rows, no MIG, no events.
   With -DDENIED a user who may not ask: no processes, no events. With -DHANGS the count never comes.
   With -DNO_DRIVER the library is there and the driver is not. Layouts are those of nvml.h.  */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define TIMEOUT 10
#define GPUS 4
#define GIB (1ull << 30)

typedef struct { unsigned index; } *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
} process_t;
typedef struct {
  device_t device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
} event_t;

static struct { unsigned index; } devices[GPUS] = {{0}, {1}, {2}, {3}};
static int event_set, events_left = 2, watched;

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
#ifdef NO_DRIVER
  return DRIVER_NOT_LOADED;
#else
  return SUCCESS;
#endif
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { (void)code; return "an error of the shim"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
#ifdef HANGS
  for (;;) pause();
#endif
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  *device = (device_t)&devices[index];
  return SUCCESS;
}

int nvmlDeviceGetIndex(device_t device, unsigned *index) {
  *index = device->index;
  return SUCCESS;
}

int nvmlDeviceGetName(device_t device, char *name, unsigned length) {
  (void)device;
  snprintf(name, length, "NVIDIA H200");
  return SUCCESS;
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-0000000%u-0000-0000-0000-000000000000", device->index);
  return SUCCESS;
}

static unsigned long long total_of(device_t device) { return (device->index == 1 ? 133 : 141) * GIB; }

int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
  memory->total = total_of(device);
  memory->used = 101 * GIB;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *processes) {
#ifdef DENIED
  (void)device, (void)count, (void)processes;
  return NO_PERMISSION;
#else
  unsigned there = device->index == 3 ? 2 : 1;
  if (*count < there) {
    *count = there;
    return INSUFFICIENT_SIZE;
  }
  memset(processes, 0, there * sizeof *processes);
  processes[0].pid = 4200 + device->index;
  processes[0].used = (device->index == 3 ? 90 : 100) * GIB;
  if (there == 2) {
    processes[1].pid = 666;
    processes[1].used = ~0ull; /* not available */
  }
  *count = there;
  return SUCCESS;
#endif
}

int nvmlDeviceGetTotalEccErrors(device_t device, int type, int counter, unsigned long long *count) {
  if (type != 1 || counter != 0) return INVALID_ARGUMENT;
  if (device->index == 0) return NOT_SUPPORTED; /* ECC is off */
  *count = device->index == 2 ? 5 : 0;
  return SUCCESS;
}

#ifndef OLD

int nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2_t *memory) {
  if (memory->version != 0x02000028) return INVALID_ARGUMENT;
  memory->total = total_of(device);
  memory->reserved = 1 * GIB;
  memory->used = 100 * GIB;
  memory->free = memory->total - memory->used - memory->reserved;
  return SUCCESS;
}

int nvmlDeviceGetRemappedRows(device_t device, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed) {
  *correctable = 9;
  *uncorrectable = device->index == 2 ? 3 : 0;
  *pending = device->index == 3;
  *failed = device->index == 2;
  return SUCCESS;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
  if (device->index == 0) return NOT_SUPPORTED;
  *current = *pending = device->index == 3;
  return SUCCESS;
}

int nvmlEventSetCreate(int **set) {
  *set = &event_set;
  return SUCCESS;
}

int nvmlEventSetFree(int *set) { return set == &event_set ? SUCCESS : INVALID_ARGUMENT; }

int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, int *set) {
#ifdef DENIED
  (void)device, (void)types, (void)set;
  return NO_PERMISSION;
#else
  if (types != 8 || set != &event_set) return INVALID_ARGUMENT;
  if (device->index == 2) watched = 1;
  return SUCCESS;
#endif
}

int nvmlEventSetWait_v2(int *set, event_t *event, unsigned milliseconds) {
  if (set != &event_set) return INVALID_ARGUMENT;
  if (!watched || !events_left) {
    usleep(milliseconds * 1000);
    return TIMEOUT;
  }
  memset(event, 0, sizeof *event);
  event->device = (device_t)&devices[2];
  event->type = 8;
  event->data = events_left == 2 ? 79 : 48;
  events_left--;
  return SUCCESS;
}

#endif
