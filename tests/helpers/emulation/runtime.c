/* What translated kernels run on: the threads of a block are fibers, which take turns from barrier to barrier in any order.
 *
 * A barrier that not all threads reach is an error, and so is an access to what is not memory of the device, or not
 * aligned, or (when races are checked) one that another thread also makes without a barrier between. One launch at a
 * time. */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define WIDTH 32
#define MOST_THREADS 384
#define STACK (1 << 16)

/* Memory of the device. */
typedef struct {
    uint64_t begin, end;
} range;

typedef struct {
    uint32_t x, y, z;
    int barrier; /* where it waits; 0 when it has ended */
    uint64_t executed; /* instructions since the barrier before */
    jmp_buf at;
    char *stack;
} fiber;

static fiber fibers[MOST_THREADS], *turns[MOST_THREADS], *self;
static uint32_t made, threads, parts, tiles, block, turn;
static int votes, verdict;
static jmp_buf home;
static void (*kernel)(void);
static const uint64_t *arguments;
static uint64_t argument_bytes;
static const range *memory;
static uint64_t ranges, launches, phase, order;
static char failure[400];

/* Give up the launch: the fibers end where they are. */
static __attribute__((noreturn)) void fail(const char *what, const char *instruction)
{
    snprintf(failure, sizeof failure, "block %u, thread (%u, %u, %u): %s%s%s", block, self->x, self->y, self->z, what,
             *instruction ? " at " : "", instruction);
    _longjmp(home, 1);
}

static int undefined(void) { fail("a division by zero", ""); }

/* A float without its fraction, as an integer of so many bits. */
static inline int64_t whole_part(double x, int bits)
{
    if (!(fabs(x) < ldexp(1, bits - 1)))
        fail("a float that no integer holds", "");
    return (int64_t)x;
}

/* The instructions that warps have executed, if COUNT counts them: between two barriers, the most that any thread of a warp
 * has executed; all warps together, and the longest warp alone, on which the others wait. */
uint64_t warp_instructions, longest_warp;
static uint64_t executed;
#ifdef COUNTED
#define COUNT executed++;
#else
#define COUNT
#endif

/* Let the next thread run, up to its next barrier. */
static __attribute__((noinline)) void wait_at(int barrier)
{
    self->barrier = barrier;
    self->executed = executed, executed = 0;
    if (_setjmp(self->at))
        return;
    if (++turn == threads)
        _longjmp(home, 1);
    self = turns[turn];
    _longjmp(self->at, 1);
}

/* The barriers to be ignored: bit n stands for those of name n. */
uint64_t lost_barriers;

/* Wait for the other threads of the block; return whether any of them has voted. */
static int barrier(int number, int name, int vote)
{
    if (lost_barriers >> name & 1)
        return vote;
    votes |= vote;
    wait_at(number);
    return verdict;
}

static void live(void)
{
    for (wait_at(0);; wait_at(0))
        kernel();
}

/* Make fibers, which stay for later launches; their contexts are of use only to begin on a stack. */
static void make_fibers(void)
{
    ucontext_t start;
    for (; made < threads; made++) {
        self = fibers + made;
        *self = (fiber){.stack = self->stack ? self->stack : malloc(STACK)};
        getcontext(&start);
        start.uc_stack.ss_sp = self->stack, start.uc_stack.ss_size = STACK;
        makecontext(&start, live, 0);
        turn = threads - 1; /* back to us */
        if (!_setjmp(home))
            setcontext(&start);
    }
}

static void shuffle(void)
{
    for (uint32_t i = threads; i-- > 1;) {
        order = order * 6364136223846793005u + 1442695040888963407u;
        const uint32_t j = (order >> 32) * (i + 1) >> 32;
        fiber *kept = turns[i];
        turns[i] = turns[j], turns[j] = kept;
    }
}

/* Let all threads run up to their next barrier; return whether they have not ended. */
static int run_phase(void)
{
    shuffle();
    phase++, votes = 0, turn = 0, self = turns[0];
    if (!_setjmp(home))
        _longjmp(self->at, 1);
    verdict = votes;
    uint64_t longest = 0;
    for (uint32_t first = 0; first < threads; first += WIDTH) {
        uint64_t most = 0;
        for (uint32_t i = first; i < first + WIDTH; i++)
            most = fibers[i].executed > most ? fibers[i].executed : most;
        warp_instructions += most;
        longest = most > longest ? most : longest;
    }
    longest_warp += longest;
    if (*failure)
        return 0;
    for (uint32_t i = 0; i < threads; i++) {
        self = fibers + i;
        if (self->barrier != fibers[0].barrier)
            return snprintf(failure, sizeof failure, "block %u: thread (%u, %u, %u) misses a barrier of thread (0, 0, 0)", block,
                            self->x, self->y, self->z), 0;
    }
    return fibers[0].barrier != 0;
}

/* Who has accessed a byte in this launch: phases count all barriers, so that 0 is never. */
typedef struct {
    uint32_t written, read; /* in which phase, last */
    const fiber *writer, *reader; /* NULL: several */
    int read_elsewhere; /* by an earlier block */
} trail;

static trail **trails; /* of each range; NULL when races are not checked */
static uint64_t first_phase; /* of this block */

/* Whether an access in a phase was without a barrier between it and us. */
static int at_once(uint32_t when, const fiber *who)
{
    return when && (when < first_phase || (when == phase && who != self));
}

static __attribute__((noinline)) void leave_trail(uint64_t number, uint64_t offset, uint32_t size, int writes, const char *instruction)
{
    if (!trails[number])
        trails[number] = calloc(memory[number].end - memory[number].begin, sizeof(trail));
    for (trail *t = trails[number] + offset; size--; t++) {
        if (at_once(t->written, t->writer) || (writes && (t->read_elsewhere || at_once(t->read, t->reader))))
            fail("a race with another thread", instruction);
        if (writes)
            t->written = phase, t->writer = self;
        else {
            t->read_elsewhere |= t->read && t->read < first_phase;
            t->reader = t->read == phase && t->reader != self ? NULL : self;
            t->read = phase;
        }
    }
}

/* The number of the range that holds an address. */
static uint64_t range_of(uint64_t address, uint32_t size, const char *instruction)
{
    uint64_t first = 0, last = ranges;
    while (first < last) {
        const uint64_t middle = (first + last) / 2;
        if (address < memory[middle].begin)
            last = middle;
        else if (address >= memory[middle].end)
            first = middle + 1;
        else if (memory[middle].end - address < size)
            break;
        else
            return middle;
    }
    fail("an access to what is not memory of the device", instruction);
}

/* What an instruction has accessed last: most often it does so again. `most` is the largest offset it may have. */
typedef struct {
    uint64_t begin, most, launch, number;
} memo;

/* Remember the range of an access, which must be memory of the device. */
static __attribute__((noinline, cold)) void look_up(memo *m, uint64_t address, uint32_t size, const char *instruction)
{
    if (address % size)
        fail("an access that is not aligned", instruction);
    if (address - (uint64_t)(uintptr_t)self->stack < STACK || address - (uint64_t)(uintptr_t)arguments < argument_bytes) {
        m->launch = 0;
        return;
    }
    const uint64_t number = range_of(address, size, instruction);
    *m = (memo){memory[number].begin, memory[number].end - memory[number].begin - size, launches,
                number};
}

/* How an access `writes`, besides 0 and 1: an addition that nobody can come between. */
#define COUNTS 2

static inline void *access_memory(memo *m, uint64_t address, uint32_t size, int writes, const char *instruction)
{
    if (__builtin_expect(m->launch != launches || address - m->begin > m->most || address % size, 0))
        look_up(m, address, size, instruction);
    if (__builtin_expect(trails != NULL, 0) && m->launch && writes != COUNTS)
        leave_trail(m->number, address - m->begin, size, writes, instruction);
    return (void *)(uintptr_t)address;
}

#define ACCESS(address, size, writes, instruction)                \
    ({                                                            \
        static memo last;                                         \
        access_memory(&last, address, size, writes, instruction); \
    })

static void run_block(void)
{
    for (uint32_t i = 0; i < threads; i++)
        turns[i] = fibers + i;
    first_phase = phase + 1;
    while (run_phase())
        ;
}

/* Run a kernel on `blocks` blocks of WIDTH x `columns` x `layers` threads; return NULL, or what went wrong.
 * values: `bytes` of arguments. available: [count], memory of the device in ascending order. */
const char *launch(void (*entry)(void), uint32_t blocks, uint32_t columns, uint32_t layers, const uint64_t *values,
                   uint64_t bytes, const range *available, uint64_t count, uint64_t seed, int check_races)
{
    threads = WIDTH * columns * layers, parts = columns, tiles = layers;
    make_fibers();
    for (uint32_t i = 0; i < threads; i++)
        fibers[i].x = i % WIDTH, fibers[i].y = i / WIDTH % parts, fibers[i].z = i / WIDTH / parts;
    kernel = entry, arguments = values, argument_bytes = bytes, memory = available, ranges = count, order = seed;
    launches++, *failure = 0, phase = 0;
    trails = check_races ? calloc(count + 1, sizeof *trails) : NULL;
    for (block = 0; block < blocks && !*failure; block++)
        run_block();
    for (uint64_t i = 0; trails && i < count; i++)
        free(trails[i]);
    free(trails);
    if (*failure)
        made = 0; /* they have not ended */
    return *failure ? failure : NULL;
}

static inline float as_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double as_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The larger of x and a number, or the smaller where `sign` is -1; the larger of two zeros is the positive one. */
static inline float limit(float x, float number, int sign)
{
    const float zero = sign > 0 ? 0.0f : -0.0f;
    if (x == 0 && number == 0)
        return signbit(x) != signbit(number) ? zero : x;
    return sign * x > sign * number ? x : number;
}

/* b with the `count` lowest bits of a in the place of those from `first` on. */
static inline uint64_t with_bits(uint64_t a, uint64_t b, uint32_t first, uint32_t count)
{
    const uint32_t begin = first & 255, number = count & 255;
    const uint64_t low = number < 64 ? ((uint64_t)1 << number) - 1 : ~(uint64_t)0;
    return begin < 64 ? (b & ~(low << begin)) | (a & low) << begin : b;
}

/* Four of the eight bytes of b and a, each named by four bits: its number, and whether only its sign is wanted. */
static inline uint32_t chosen_bytes(uint32_t a, uint32_t b, uint32_t names)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t name = names >> 4 * i & 15, byte = bytes >> 8 * (name & 7) & 255;
        result |= (name & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
