/* A stand-in for the CUDA driver's library, for machines without a GPU.
 *
 * "Memory of the GPU" is a memfd, and its descriptor is exported where a driver exports a dma-buf. Calls that need a context of the
 * thread fail without one, and copies outside an allocation fail. ISOLANE_STAND_IN says what is missing: "gpu", "dma-buf", "export". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_SUPPORTED = 801 };
enum { DMA_BUF_SUPPORTED = 124, DMA_BUF_FD = 1, BLOCKS = 64 };
static const size_t page = 65536;

static struct { uint64_t start; size_t length; int memory; } blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int contexts;
static __thread void *current;

static int lacks(const char *what) {
	const char *missing = getenv("ISOLANE_STAND_IN");
	return missing && !strcmp(missing, what);
}

/* The allocation that has all of these bytes, or -1. */
static int find(uint64_t start, size_t length) {
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].start && start >= blocks[i].start && start - blocks[i].start + length <= blocks[i].length)
			return i;
	return -1;
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDeviceGetCount(int *count) { *count = !lacks("gpu"); return SUCCESS; }
int cuDeviceGet(int *device, int index) { *device = 7; return index ? INVALID_VALUE : SUCCESS; }

int cuGetErrorName(int code, const char **name) {
	*name = code == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
	return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	*value = attribute == DMA_BUF_SUPPORTED && !lacks("dma-buf");
	return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
	__atomic_add_fetch(&contexts, 1, __ATOMIC_SEQ_CST);
	*context = &contexts;
	return device == 7 ? SUCCESS : INVALID_VALUE;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
	return device == 7 && __atomic_sub_fetch(&contexts, 1, __ATOMIC_SEQ_CST) >= 0 ? SUCCESS : INVALID_CONTEXT;
}

int cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }

int cuMemAlloc_v2(uint64_t *address, size_t length) {
	if (!current || contexts <= 0)
		return INVALID_CONTEXT;
	length = (length + page - 1) / page * page;
	char *room = mmap(NULL, length + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int memory = memfd_create("stand-in-gpu", MFD_CLOEXEC);
	if (room == MAP_FAILED || memory < 0 || ftruncate(memory, length))
		return OUT_OF_MEMORY;
	char *start = (char *)(((uintptr_t)room + page - 1) / page * page);
	if (mmap(start, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == MAP_FAILED)
		return OUT_OF_MEMORY;
	/* A GPU's memory is not zero at first. */
	memset(start, 0xa5, length);
	int status = OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS && status; i++)
		if (!blocks[i].start) {
			blocks[i].start = (uintptr_t)start;
			blocks[i].length = length;
			blocks[i].memory = memory;
			*address = blocks[i].start;
			status = SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return status;
}

int cuMemFree_v2(uint64_t address) {
	if (!current || contexts <= 0)
		return INVALID_CONTEXT;
	int status = INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].start && blocks[i].start == address) {
			munmap((void *)(uintptr_t)address, blocks[i].length);
			close(blocks[i].memory);
			blocks[i].start = 0;
			status = SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return status;
}

/* Whether a copy or an export of these bytes is allowed. */
static int check(uint64_t address, size_t length) {
	if (!current || contexts <= 0)
		return INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	int found = find(address, length);
	pthread_mutex_unlock(&lock);
	return found < 0 ? INVALID_VALUE : SUCCESS;
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t length) {
	int status = check(to, length);
	if (!status)
		memset((void *)(uintptr_t)to, value, length);
	return status;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t length) {
	int status = check(to, length);
	if (!status)
		memcpy((void *)(uintptr_t)to, from, length);
	return status;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t length) {
	int status = check(from, length);
	if (!status)
		memcpy(to, (void *)(uintptr_t)from, length);
	return status;
}

int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t length, int type, uint64_t flags) {
	int status = check(address, length);
	if (status)
		return status;
	if (type != DMA_BUF_FD || flags || address % page || length % page)
		return INVALID_VALUE;
	if (lacks("export"))
		return NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	int found = find(address, length);
	/* A memfd cannot be exported from its middle on. */
	int memory = found >= 0 && blocks[found].start == address ? dup(blocks[found].memory) : -1;
	pthread_mutex_unlock(&lock);
	*(int *)handle = memory;
	return memory < 0 ? INVALID_VALUE : SUCCESS;
}
