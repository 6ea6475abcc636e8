#include "runtime/comm/host/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/range.h"
#include "base/text/fnv1a.h"
#include "runtime/comm/host/control_block.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = 2 << 20;
constexpr int64_t kLineBytes = 64;
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
constexpr auto kNap = std::chrono::milliseconds(1);  // between two checks of local rank 0

// Slices are aligned to pages, not to huge pages. Alignment to huge pages would add a third to the
// memory that a small model needs.
int64_t alignment_of(Bytes bytes) {
    return bytes.value >= kPageBytes ? kPageBytes : kLineBytes;
}

[[noreturn]] void fail_without_memory(Bytes bytes, const char* what, int error_number) {
    // EFBIG means the limit on file sizes, which also applies to memory that ranks share.
    fail(ExitCode::kSetup,
         "cannot make shared memory of {} for gradients and parameters: {} failed: {}; {}",
         to_text(bytes), what, errno_text(error_number),
         error_number == EFBIG ? "raise the limit on file sizes (ulimit -f)"
                               : "use a smaller model, more hosts, or raise the memory limit of "
                                 "this job");
}

std::byte* map_shared(Bytes bytes, int fd) {
    const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void* const base =
        ::mmap(nullptr, static_cast<size_t>(bytes.value), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED) fail_without_memory(bytes, "mapping it", errno);
    // Huge pages are optional: many systems never use them for shared memory, and nothing here
    // depends on them.
    (void)::madvise(base, static_cast<size_t>(bytes.value), MADV_HUGEPAGE);
    return static_cast<std::byte*>(base);
}

// Describes DESCRIPTOR for a message. A job's ranks get their descriptor from DSL_ARENA_FD, and a
// stage's ranks get it from the stage's first rank.
std::string text_of(const Arena::Descriptor& descriptor) {
    return fmt::format("the memory that ranks of this host share (file descriptor {})",
                       descriptor.fd);
}

void size_and_seal(const Arena::Descriptor& descriptor, Bytes bytes) {
    struct stat state {};
    if (::fstat(descriptor.fd, &state) != 0)
        fail(ExitCode::kSetup, "{}: {}", text_of(descriptor), errno_text(errno));
    if (state.st_size != 0)
        fail(ExitCode::kSetup,
             "{} already contains {} bytes, but every job needs new memory. Start the job again "
             "with dslaunch, which makes new memory. A program that dslaunch starts can open only "
             "one engine",
             text_of(descriptor), state.st_size);
    const int seals = ::fcntl(descriptor.fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SEAL) != 0)
        fail(ExitCode::kSetup,
             "{}: cannot be sealed; it must be a memfd made with MFD_ALLOW_SEALING",
             text_of(descriptor));
    if (::ftruncate(descriptor.fd, bytes.value) != 0)
        fail_without_memory(bytes, "ftruncate", errno);
    if (::fcntl(descriptor.fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        fail(ExitCode::kSetup, "{}: cannot be sealed: {}", text_of(descriptor), errno_text(errno));
}

void wait_until_sized(const Arena::Descriptor& descriptor, const ArenaLayout& layout,
                      TimePoint deadline) {
    struct stat state {};
    for (SystemClock clock; state.st_size == 0; clock.sleep_for(kNap)) {
        if (::fstat(descriptor.fd, &state) != 0)
            fail(ExitCode::kSetup, "{}: {}", text_of(descriptor), errno_text(errno));
        if (state.st_size == 0 && clock.now() > deadline)
            fail(ExitCode::kHang, "{}: local rank 0 did not set its size in time",
                 text_of(descriptor));
    }
    if (state.st_size != layout.total_bytes().value)
        fail(ExitCode::kDiverged,
             "{} has {} bytes, but this rank's plan needs {}: the ranks of this host made "
             "different plans",
             text_of(descriptor), state.st_size, layout.total_bytes().value);
}

void wait_for_head(const ControlHead& head, const ArenaLayout& layout, TimePoint deadline) {
    for (SystemClock clock; head.magic.load() != kControlMagic; clock.sleep_for(kNap)) {
        if (clock.now() > deadline)
            fail(ExitCode::kHang, "local rank 0 did not open the shared arena in time");
    }
    if (head.layout_hash.load() != layout.hash())
        fail(ExitCode::kDiverged,
             "the layout of the shared arena differs from this rank's plan: the ranks of this host "
             "made different plans");
}

void write_head(std::byte* base, const ArenaLayout& layout) {
    ControlHead& head = *reinterpret_cast<ControlHead*>(base);
    head.layout_hash.store(layout.hash());
    head.magic.store(kControlMagic);
}

// Makes all pages that [begin, end) touches present and writable.
void populate_range(std::byte* base, int64_t begin, int64_t end) {
    static const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);  // 64 KiB on some ARM machines
    begin = begin / page_bytes * page_bytes;
    end = round_up(end, page_bytes);
    if (begin == end) return;
    const Bytes bytes{end - begin};
    if (::madvise(base + begin, static_cast<size_t>(bytes.value), MADV_POPULATE_WRITE) == 0) return;
    if (errno != EINVAL) fail_without_memory(bytes, "populating it", errno);
    // Linux before 5.14 lacks MADV_POPULATE_WRITE. An atomic operation that changes nothing faults
    // each page in, even while other ranks use it.
    for (int64_t at = begin; at < end; at += page_bytes)
        reinterpret_cast<std::atomic<uint8_t>*>(base + at)->fetch_or(0);
}

}  // namespace

ArenaLayout::ArenaLayout(int local_world_size) : local_world_size_(local_world_size) {
    DSL_CHECK(local_world_size >= 1, "{} local ranks", local_world_size);
    for (const char* name : {"enter", "barrier", "mailbox", "mailbox read"}) add_signal(name);
    DSL_CHECK(signal_count() == kInternalSignals, "{} internal signals", signal_count());
}

SliceId ArenaLayout::add_shared(const std::string& name, Bytes bytes) {
    DSL_CHECK(bytes.value >= 0, "slice {} cannot have {} bytes", name, bytes.value);
    const int64_t offset = round_up(shared_end_, alignment_of(bytes));
    slices_.push_back({name, bytes, offset, false});
    shared_end_ = offset + bytes.value;
    return {static_cast<int>(slices_.size()) - 1};
}

SliceId ArenaLayout::add_per_rank(const std::string& name, Bytes bytes) {
    DSL_CHECK(bytes.value >= 0, "slice {} cannot have {} bytes", name, bytes.value);
    const int64_t offset = round_up(part_end_, alignment_of(bytes));
    slices_.push_back({name, bytes, offset, true});
    part_end_ = offset + bytes.value;
    return {static_cast<int>(slices_.size()) - 1};
}

SignalId ArenaLayout::add_signal(const std::string& name) {
    signals_.push_back(name);
    return {signal_count() - 1};
}

BucketId ArenaLayout::add_bucket(const std::string& name, int64_t numel) {
    DSL_CHECK(numel >= 0, "bucket {} cannot have {} elements", name, numel);
    return add_bucket(name, numel, add_per_rank(name, {numel * kFloatBytes}), 0);
}

BucketId ArenaLayout::add_bucket(const std::string& name, int64_t numel, SliceId slice,
                                 int64_t offset_numel) {
    const Slice& memory = this->slice(slice);
    DSL_CHECK(memory.per_rank, "bucket {} cannot be on slice {}, which is shared", name,
              memory.name);
    DSL_CHECK(numel >= 0 && offset_numel >= 0 && offset_numel * kFloatBytes % kLineBytes == 0 &&
                  (offset_numel + numel) * kFloatBytes <= memory.bytes.value,
              "bucket {} of {} elements at element {} does not fit slice {}, which has {}", name,
              numel, offset_numel, memory.name, to_text(memory.bytes));
    Bucket bucket{.name = name, .slice = slice, .offset_numel = offset_numel, .numel = numel};
    bucket.posted = add_signal(name + " posted");
    bucket.summed = add_signal(name + " summed on the host");
    bucket.reduced = add_signal(name + " reduced");
    bucket.released = add_signal(name + " released");
    buckets_.push_back(bucket);
    return {bucket_count() - 1};
}

const ArenaLayout::Slice& ArenaLayout::slice(SliceId id) const {
    DSL_CHECK(id.index >= 0 && static_cast<size_t>(id.index) < slices_.size(), "slice {}",
              id.index);
    return slices_[id.index];
}

const ArenaLayout::Bucket& ArenaLayout::bucket(BucketId id) const {
    DSL_CHECK(id.index >= 0 && id.index < bucket_count(), "bucket {}", id.index);
    return buckets_[id.index];
}

const std::string& ArenaLayout::signal_name(SignalId id) const {
    DSL_CHECK(id.index >= 0 && id.index < signal_count(), "signal {}", id.index);
    return signals_[id.index];
}

Bytes ArenaLayout::control_bytes() const {
    const Bytes bytes = ControlBlock::bytes({local_world_size_, signal_count()});
    // Slices are aligned relative to the beginning of their region. If a slice is aligned to huge
    // pages, its region must begin at a huge page too.
    return {round_up(bytes.value, std::max(shared_end_, part_end_) >= kHugePageBytes
                                      ? kHugePageBytes
                                      : kPageBytes)};
}

Bytes ArenaLayout::shared_bytes() const {
    return {round_up(shared_end_, std::max(kPageBytes, alignment_of(part_bytes())))};
}

Bytes ArenaLayout::part_bytes() const {
    return {round_up(part_end_, part_end_ >= kHugePageBytes ? kHugePageBytes : kPageBytes)};
}

Bytes ArenaLayout::total_bytes() const {
    return control_bytes() + shared_bytes() + part_bytes() * local_world_size_;
}

uint64_t ArenaLayout::hash() const {
    uint64_t hash = fnv1a(kFnv1aBegin, std::to_string(local_world_size_));
    for (const Slice& slice : slices_)
        hash = fnv1a(hash, fmt::format("{}:{}:{}:{};", slice.name, slice.bytes.value, slice.offset,
                                       slice.per_rank));
    for (const Bucket& bucket : buckets_)
        hash = fnv1a(hash, fmt::format("{}:{}:{}:{};", bucket.name, bucket.slice.index,
                                       bucket.offset_numel, bucket.numel));
    for (const std::string& name : signals_) hash = fnv1a(hash, name + ";");
    return hash;
}

Arena Arena::anonymous(ArenaLayout layout) {
    Arena arena(std::move(layout));
    arena.base_ = map_shared(arena.layout_.total_bytes(), -1);
    write_head(arena.base_, arena.layout_);
    return arena;
}

Arena Arena::on_device(ArenaLayout layout, device::Device& device) {
    DSL_CHECK(layout.local_world_size() == 1, "{} ranks cannot share a device",
              layout.local_world_size());
    Arena arena(std::move(layout));
    arena.on_device_ = true;
    arena.base_ = map_shared(arena.mapped_bytes(), -1);
    write_head(arena.base_, arena.layout_);
    arena.on_device_slices_ = device.allocate(
        arena.layout_.total_bytes() - arena.layout_.control_bytes(), "parameters and gradients");
    return arena;
}

Arena Arena::from_descriptor(ArenaLayout layout, const Descriptor& descriptor) {
    const TimePoint deadline = SystemClock().now() + descriptor.time_limit;
    DSL_CHECK(descriptor.local_rank >= 0 && descriptor.local_rank < layout.local_world_size(),
              "local rank {} does not exist among {} local ranks", descriptor.local_rank,
              layout.local_world_size());
    if (descriptor.local_rank == 0) {
        size_and_seal(descriptor, layout.total_bytes());
    } else {
        wait_until_sized(descriptor, layout, deadline);
    }
    Arena arena(std::move(layout));
    arena.base_ = map_shared(arena.layout_.total_bytes(), descriptor.fd);
    if (descriptor.local_rank == 0) {
        write_head(arena.base_, arena.layout_);
    } else {
        wait_for_head(*reinterpret_cast<const ControlHead*>(arena.base_), arena.layout_, deadline);
    }
    return arena;
}

Arena::Arena(Arena&& other) noexcept
    : layout_(std::move(other.layout_)),
      base_(std::exchange(other.base_, nullptr)),
      on_device_(other.on_device_),
      on_device_slices_(std::move(other.on_device_slices_)) {}

Arena::~Arena() {
    if (base_ != nullptr) ::munmap(base_, static_cast<size_t>(mapped_bytes().value));
}

Bytes Arena::mapped_bytes() const {
    return on_device_ ? layout_.control_bytes() : layout_.total_bytes();
}

std::byte* Arena::slices() const {
    return on_device_ ? on_device_slices_.bytes().data() : base_ + layout_.control_bytes().value;
}

void Arena::populate(int local_rank) const {
    if (on_device_) return;
    const int64_t shared_begin = layout_.control_bytes().value;
    const Range shared =
        part_range(layout_.shared_bytes().value, {local_rank, layout_.local_world_size()});
    populate_range(base_, shared_begin + shared.begin, shared_begin + shared.end());
    const int64_t part = layout_.part_bytes().value;
    const int64_t part_begin = shared_begin + layout_.shared_bytes().value + part * local_rank;
    populate_range(base_, part_begin, part_begin + part);
}

std::span<std::byte> Arena::control() const {
    return {base_, static_cast<size_t>(layout_.control_bytes().value)};
}

std::span<std::byte> Arena::shared(SliceId id) const {
    const ArenaLayout::Slice& slice = layout_.slice(id);
    DSL_CHECK(!slice.per_rank, "slice {} is per rank, not shared", slice.name);
    return {slices() + slice.offset, static_cast<size_t>(slice.bytes.value)};
}

std::span<std::byte> Arena::of_rank(SliceId id, int local_rank) const {
    const ArenaLayout::Slice& slice = layout_.slice(id);
    DSL_CHECK(slice.per_rank, "slice {} is shared, not per rank", slice.name);
    DSL_CHECK(local_rank >= 0 && local_rank < layout_.local_world_size(), "local rank {}",
              local_rank);
    const int64_t offset =
        layout_.shared_bytes().value + layout_.part_bytes().value * local_rank + slice.offset;
    return {slices() + offset, static_cast<size_t>(slice.bytes.value)};
}

std::span<float> Arena::bucket_of_rank(BucketId id, int local_rank) const {
    const ArenaLayout::Bucket& bucket = layout_.bucket(id);
    std::byte* const slice = of_rank(bucket.slice, local_rank).data();
    return {reinterpret_cast<float*>(slice) + bucket.offset_numel,
            static_cast<size_t>(bucket.numel)};
}

}  // namespace dslaunch::runtime
