// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A plugin of QEMU that makes the far memory of an emulated machine slower than the near memory.
 *
 * Problem: an emulated machine reads all memory at one speed, so a program in it loses nothing when its pages are far.
 * Method: the machine's clock counts instructions. An access that misses a cache (one processor, sets of eight lines of 64 bytes, the least recently used goes)
 * moves this clock forward by the latency of the tier that has the page, and by a wait that grows with the tier's load u in the
 * last 10 ms of instructions and accesses: service * u / (1 - u). A line that follows another one in a stream is prefetched: it takes
 * the service time instead of the latency. So a chase through memory sees the latency, a stream the bandwidth, and a busy
 * host changes neither. Programs take turns on the one processor; the load of 10 ms makes them meet as if they ran together.
 * Bytes of each tier are counted. A program in the machine names the place of both counters: it stores there after `nop MARK(%rax,%rax)`.
 * Limits: the cache's tags are virtual addresses, so a page that has just moved still hits. Not modelled: fetches of
 * instructions, page walks, write-back, several misses at once.
 * Options: boundary=BYTES (of near memory), cache=LINES (a power of two), near=LATENCY:SERVICE, far=LATENCY:SERVICE (ns), shift=SHIFT
 * (an instruction takes 2^SHIFT ns, as with -icount).
 * Source: docs/devel/tcg-plugins.rst of QEMU 7.2, whose header no package has. The clock is no part of that interface: the place of its
 * offset is tested when the plugin is loaded, and QEMU ends where it is another one.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef void access_function(unsigned int processor, uint32_t info, uint64_t address, void *data);
typedef void translation_function(uint64_t id, struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translation_function *function);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation, void *counter, uint64_t step);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, access_function *function, int registers, int direction, void *data);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(uint32_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *place);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *place);
enum { ADD = 0, NO_REGISTERS = 0, READS_AND_WRITES = 3 };

/* Not of the interface: the clock of a machine that counts instructions, and its processors. */
extern int64_t timers_state[];
extern int64_t icount_get(void);
extern void *qemu_get_cpu(int index);
extern void cpu_exit(void *processor);
extern void *qemu_ram_block_from_host(void *host, bool round_offset, uint64_t *offset);
#define CLOCK_OFFSET 5

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

#define LINE_SHIFT 6
#define LINES_MAX 65536
/* Lines of a set. With one, a page and its copy would push each other out at every byte: 4 ms for a page. */
#define WAYS 8
/* `nop 0x4e4c5349(%rax,%rax)`, which no compiler makes. */
static const unsigned char mark[] = {0x0f, 0x1f, 0x84, 0x00, 'I', 'S', 'L', 'N'};
#define STREAMS 8
/* Timers that are due wait for at most so long, ns. */
#define TIMERS_LATE 100000
#define WINDOW 10000000
#define LOAD_MAX 0.95

struct tier {
	uint64_t latency, service, lines;
	/* What a line waits for others, ns, by the load of the last window. */
	uint64_t wait;
};

static struct tier tiers[2];
static uint64_t tags[LINES_MAX], streams[STREAMS];
static uint64_t mask, boundary, instructions, waited, since_exit, window_begin;
static unsigned int shift, next_stream;
static void *processor;
/* Bytes of near and of far memory, in the machine's memory; NULL before a program named the place. */
static uint64_t *bytes;

static void end_window(uint64_t length)
{
	for (int i = 0; i < 2; i++) {
		double load = (double)(tiers[i].lines * tiers[i].service) / length;

		load = load < LOAD_MAX ? load : LOAD_MAX;
		tiers[i].wait = tiers[i].service * load / (1 - load);
		tiers[i].lines = 0;
	}
}

static bool is_prefetched(uint64_t line)
{
	for (int i = 0; i < STREAMS; i++)
		if (streams[i] + 1 == line) {
			streams[i] = line;
			return true;
		}
	streams[next_stream++ % STREAMS] = line;
	return false;
}

static __attribute__((noinline)) void miss(uint32_t info, uint64_t address)
{
	struct qemu_plugin_hwaddr *place = qemu_plugin_get_hwaddr(info, address);
	uint64_t now = (instructions << shift) + waited, time;
	struct tier *tier;

	if (!place || qemu_plugin_hwaddr_is_io(place))
		return;
	/* The interface counts a block's place among all blocks and its place in the machine: memory of node 1 is further away. */
	tier = &tiers[qemu_plugin_hwaddr_phys_addr(place) >= boundary];
	tier->lines++;
	if (bytes)
		bytes[tier - tiers] += 1 << LINE_SHIFT;
	time = tier->wait + (is_prefetched(address >> LINE_SHIFT) ? tier->service : tier->latency);
	waited += time;
	since_exit += time;
	__atomic_fetch_add(&timers_state[CLOCK_OFFSET], time, __ATOMIC_RELAXED);
	if (now - window_begin >= WINDOW) {
		end_window(now - window_begin);
		window_begin = now;
	}
	if (since_exit >= TIMERS_LATE) {
		since_exit = 0;
		processor = processor ? processor : qemu_get_cpu(0);
		cpu_exit(processor);
	}
}

/* Brings a line to the front of its set; false if it was not there. */
static __attribute__((noinline)) bool found(uint64_t *set, uint64_t line)
{
	int place = 1;

	while (place < WAYS - 1 && set[place] != line)
		place++;
	bool hit = set[place] == line;

	for (; place > 0; place--)
		set[place] = set[place - 1];
	set[0] = line;
	return hit;
}

static void access(unsigned int index, uint32_t info, uint64_t address, void *data)
{
	uint64_t line = address >> LINE_SHIFT, *set = &tags[(line & mask) * WAYS];

	(void)index;
	(void)data;
	if (__builtin_expect(set[0] != line, 0) && !found(set, line))
		miss(info, address);
}

/* A store after the mark. QEMU 7.2 keeps the place of memory in its own address space behind two flags. */
static void name_counters(unsigned int index, uint32_t info, uint64_t address, void *data)
{
	struct qemu_plugin_hwaddr *place = qemu_plugin_get_hwaddr(info, address);
	uint64_t offset;
	void *host;

	(void)index;
	(void)data;
	if (!place || qemu_plugin_hwaddr_is_io(place) || address % sizeof(*bytes))
		return;
	memcpy(&host, (char *)place + sizeof(host), sizeof(host));
	if (qemu_ram_block_from_host(host, false, &offset))
		bytes = host;
}

static bool is_mark(const struct qemu_plugin_insn *instruction)
{
	return qemu_plugin_insn_size(instruction) == sizeof(mark) && !memcmp(qemu_plugin_insn_data(instruction), mark, sizeof(mark));
}

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &instructions, count);
	for (size_t i = 0; i < count; i++) {
		bool names = i && is_mark(qemu_plugin_tb_get_insn(block, i - 1));

		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), names ? name_counters : access, NO_REGISTERS, READS_AND_WRITES, NULL);
	}
}

static int refuse(const char *reason)
{
	fprintf(stderr, "slow_tier: %s\n", reason);
	return 1;
}

static bool is_clock(void)
{
	int64_t before = icount_get(), after;

	timers_state[CLOCK_OFFSET] += 1000;
	after = icount_get();
	timers_state[CLOCK_OFFSET] -= 1000;
	return after - before == 1000;
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *information, int count, char **options)
{
	unsigned long lines = 0;

	(void)information;
	for (int i = 0; i < count; i++)
		if (sscanf(options[i], "near=%lu:%lu", &tiers[0].latency, &tiers[0].service) != 2 &&
		    sscanf(options[i], "far=%lu:%lu", &tiers[1].latency, &tiers[1].service) != 2 && sscanf(options[i], "cache=%lu", &lines) != 1 &&
		    sscanf(options[i], "boundary=%lu", &boundary) != 1 && sscanf(options[i], "shift=%u", &shift) != 1)
			return refuse(options[i]);
	if (lines < WAYS || lines > LINES_MAX || lines & (lines - 1) || !boundary)
		return refuse("cache must be a power of two of lines, 8 to 65536, and boundary the bytes of near memory");
	if (!is_clock())
		return refuse("this QEMU has its clock at another place: only 7.2 is known");
	mask = lines / WAYS - 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
