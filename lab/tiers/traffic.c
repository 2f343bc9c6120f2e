// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Gives an emulated machine with slow far memory (slow_tier.c) counters of bandwidth, in files with the names of resctrl.
 *
 *     traffic DIRECTORY GROUPS
 *
 * Problem: the plugin counts bytes of near and far memory, and a service needs them for each application. Method: the plugin adds to two
 * words in memory of this program. A BPF program at each change of the running task adds what they grew by to the process that ran. Every
 * PERIOD_NS, before any other program, this program writes all sums into DIRECTORY/mon_data and DIRECTORY/mon_groups/isolane-mem-N/mon_data
 * for N from 1 to GROUPS. A group has one process: that of the thread whose number was written last into `tasks`.
 * Limits: traffic of devices is not counted; a sum is up to PERIOD_NS old. Source: the kernel's documentation of resctrl.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 5000000
/* Processes of groups are looked up every 0.1 s. */
#define LOOK 20
#define GROUPS_MAX 64
#define PROCESSES_MAX 256

struct bytes {
	uint64_t near, far;
};

/* What the plugin counted, and what of it is attributed. */
struct shared {
	struct bytes counted, attributed;
};

struct group {
	char path[256];
	uint32_t process;
	int local, total;
};

static int bpf(int command, union bpf_attr *attributes)
{
	int done = syscall(SYS_bpf, command, attributes, sizeof(*attributes));

	if (done < 0) {
		perror("traffic: bpf");
		exit(1);
	}
	return done;
}

static int make_map(int type, int key, int value, int entries, int flags)
{
	union bpf_attr attributes = {.map_type = type, .key_size = key, .value_size = value, .max_entries = entries, .map_flags = flags};

	return bpf(BPF_MAP_CREATE, &attributes);
}

#define OP(CODE, DST, SRC, OFF, IMM) ((struct bpf_insn){.code = CODE, .dst_reg = DST, .src_reg = SRC, .off = OFF, .imm = IMM})
#define LOAD(DST, SRC, OFF) OP(BPF_LDX | BPF_MEM | BPF_DW, DST, SRC, OFF, 0)
#define STORE(DST, OFF, SRC) OP(BPF_STX | BPF_MEM | BPF_DW, DST, SRC, OFF, 0)
#define MAP(DST, KIND, FD) OP(BPF_LD | BPF_DW | BPF_IMM, DST, KIND, 0, FD), OP(0, 0, 0, 0, 0)
#define MATH(KIND, DST, SRC) OP(BPF_ALU64 | KIND | BPF_X, DST, SRC, 0, 0)
#define MATH_BY(KIND, DST, NUMBER) OP(BPF_ALU64 | KIND | BPF_K, DST, 0, 0, NUMBER)
#define CALL(FUNCTION) OP(BPF_JMP | BPF_CALL, 0, 0, 0, FUNCTION)
/* Adds to the sum at r0 + OFF what is in register SRC. */
#define ADD_TO_SUM(OFF, SRC) LOAD(1, 0, OFF), MATH(BPF_ADD, 1, SRC), STORE(0, OFF, 1)
/* Register DST: what the counter grew by since it was attributed last. */
#define TAKE(DST, COUNTED, ATTRIBUTED) LOAD(DST, 6, COUNTED), LOAD(1, 6, ATTRIBUTED), STORE(6, ATTRIBUTED, DST), MATH(BPF_SUB, DST, 1)

/* Runs while the task that ends its turn is still the current one. */
static void attribute(int shared, int sums)
{
	struct bpf_insn program[] = {
		MAP(6, BPF_PSEUDO_MAP_VALUE, shared),
		TAKE(7, 0, 16),
		TAKE(8, 8, 24),
		CALL(BPF_FUNC_get_current_pid_tgid),
		MATH_BY(BPF_RSH, 0, 32),
		OP(BPF_STX | BPF_MEM | BPF_W, 10, 0, -4, 0),
		MATH(BPF_MOV, 2, 10),
		MATH_BY(BPF_ADD, 2, -4),
		MAP(1, BPF_PSEUDO_MAP_FD, sums),
		CALL(BPF_FUNC_map_lookup_elem),
		OP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 6, 0),
		ADD_TO_SUM(0, 7),
		ADD_TO_SUM(8, 8),
		MATH_BY(BPF_MOV, 0, 0),
		OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	static char log[1 << 16];
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
		.insns = (uint64_t)program,
		.insn_cnt = sizeof(program) / sizeof(*program),
		.license = (uint64_t)"GPL",
		.log_buf = (uint64_t)log,
		.log_size = sizeof(log),
		.log_level = 1,
	};
	int file = syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load));

	if (file < 0) {
		fprintf(stderr, "traffic: %s\n", log);
		exit(1);
	}
	union bpf_attr open = {.raw_tracepoint = {.name = (uint64_t)"sched_switch", .prog_fd = file}};

	bpf(BPF_RAW_TRACEPOINT_OPEN, &open);
}

/* Tells the plugin where it counts. A block of code may end between the mark and the store, so more than once. */
static bool name_counters(volatile struct shared *shared)
{
	for (int i = 0; i < 100 && !shared->counted.near; i++) {
		__asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00\n.ascii \"ISLN\"\nmovq %1, (%0)" : : "r"(&shared->counted), "r"(0UL) : "memory");
		usleep(1000);
	}
	return shared->counted.near;
}

static int open_file(const char *path, const char *name, int flags)
{
	char whole[512];

	snprintf(whole, sizeof(whole), "%s/%s", path, name);
	int file = open(whole, flags);

	if (file < 0) {
		perror(whole);
		exit(1);
	}
	return file;
}

static void open_group(struct group *group)
{
	group->local = open_file(group->path, "mon_data/mon_L3_00/mbm_local_bytes", O_WRONLY);
	group->total = open_file(group->path, "mon_data/mon_L3_00/mbm_total_bytes", O_WRONLY);
}

/* One length for all numbers: a reader never finds half of one. */
static void write_number(int file, uint64_t number)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%020lu\n", number);

	if (pwrite(file, text, length, 0) != length) {
		perror("traffic: pwrite");
		exit(1);
	}
}

static void write_group(const struct group *group, struct bytes bytes)
{
	write_number(group->local, bytes.near);
	write_number(group->total, bytes.near + bytes.far);
}

/* The process of the thread that joined the group last; 0 without one. */
static uint32_t process_of(const struct group *group)
{
	char text[1024] = "";
	int tasks = open_file(group->path, "tasks", O_RDONLY);
	ssize_t length = read(tasks, text, sizeof(text) - 1);

	close(tasks);
	if (length <= 0 || !atoi(text))
		return 0;
	snprintf(text, sizeof(text), "/proc/%d/status", atoi(text));
	int status = open(text, O_RDONLY);

	if (status < 0)
		return 0;
	length = read(status, text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = 0;
	close(status);
	const char *line = strstr(text, "Tgid:");

	return line ? atoi(line + 5) : 0;
}

static void look(struct group *group, int sums)
{
	uint32_t process = process_of(group);
	struct bytes none = {0};
	union bpf_attr add = {.map_fd = sums, .key = (uint64_t)&process, .value = (uint64_t)&none, .flags = BPF_NOEXIST};

	if (process && process != group->process)
		syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &add, sizeof(add));
	group->process = process ? process : group->process;
}

static struct bytes sum_of(int sums, uint32_t process)
{
	struct bytes bytes = {0};
	union bpf_attr get = {.map_fd = sums, .key = (uint64_t)&process, .value = (uint64_t)&bytes};

	syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &get, sizeof(get));
	return bytes;
}

int main(int count, char **words)
{
	static struct group groups[GROUPS_MAX + 1];
	struct sched_param first = {.sched_priority = 1};
	struct timespec next;
	int number = count == 3 ? atoi(words[2]) : 0;

	if (number < 1 || number > GROUPS_MAX) {
		fprintf(stderr, "traffic: DIRECTORY GROUPS, 1 to %d groups\n", GROUPS_MAX);
		return 2;
	}
	int shared = make_map(BPF_MAP_TYPE_ARRAY, 4, sizeof(struct shared), 1, BPF_F_MMAPABLE);
	int sums = make_map(BPF_MAP_TYPE_LRU_HASH, 4, sizeof(struct bytes), PROCESSES_MAX, 0);
	struct shared *seen = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);

	if (seen == MAP_FAILED || !name_counters(seen)) {
		fprintf(stderr, "traffic: no counters: this machine needs lab/vm --slow\n");
		return 1;
	}
	attribute(shared, sums);
	snprintf(groups[0].path, sizeof(groups[0].path), "%s", words[1]);
	open_group(&groups[0]);
	for (int i = 1; i <= number; i++) {
		snprintf(groups[i].path, sizeof(groups[i].path), "%s/mon_groups/isolane-mem-%d", words[1], i);
		open_group(&groups[i]);
	}
	sched_setscheduler(0, SCHED_FIFO, &first);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (unsigned int turn = 0;; turn++) {
		write_group(&groups[0], seen->counted);
		for (int i = 1; i <= number; i++) {
			if (turn % LOOK == 0)
				look(&groups[i], sums);
			if (groups[i].process)
				write_group(&groups[i], sum_of(sums, groups[i].process));
		}
		next.tv_nsec += PERIOD_NS;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
