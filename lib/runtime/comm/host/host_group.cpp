#include "runtime/comm/host/host_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "runtime/comm/host/futex.h"

namespace dslaunch::runtime {

namespace {

constexpr int kSpins = 200;  // spins before a sleep: a few microseconds, with their pauses
// The time between two checks that the group is not poisoned and the awaited rank is alive. It is
// also the longest delay after a wake-up that comes just before the sleep.
constexpr auto kSliceOfSleep = std::chrono::milliseconds(10);

// The header before a rank's piece in its mailbox.
struct MailHeader {
    uint64_t total_bytes = 0;  // bytes of the whole message
};
constexpr size_t kPieceBytes = static_cast<size_t>(kMailboxBytes) - sizeof(MailHeader);

// Generations wrap around: half of all numbers count as later than a given number.
bool has_reached(uint32_t current, uint32_t wanted) {
    return static_cast<int32_t>(current - wanted) >= 0;
}

bool reached(const SignalWord& word, uint32_t generation) {
    return has_reached(word.generation.load(std::memory_order_acquire), generation);
}

class Sleeper {
  public:
    explicit Sleeper(SignalWord& word) : word_(word) { word_.sleepers.fetch_add(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() { word_.sleepers.fetch_sub(1); }

  private:
    SignalWord& word_;
};

}  // namespace

HostGroup::HostGroup(const Arena& arena, const HostGroupOptions& options)
    : options_(options),
      layout_(arena.layout()),
      control_(arena.control().data(),
               {arena.layout().local_world_size(), arena.layout().signal_count()}) {
    DSL_CHECK(options.local_rank >= 0 && options.local_rank < local_world_size(),
              "local rank {} does not exist among {} local ranks", options.local_rank,
              local_world_size());
    const int32_t own_pid = static_cast<int32_t>(::getpid());
    control_.pid(options.local_rank).store(own_pid);
    post_internal(kSignalEntered, 1);
    await_all_internal(kSignalEntered, 1);
    process_fds_.resize(static_cast<size_t>(local_world_size()));
    for (int rank = 0; rank < local_world_size(); ++rank) {
        const int32_t pid = control_.pid(rank).load();
        if (pid == own_pid) continue;
        process_fds_[rank].reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
}

void HostGroup::post(SignalId signal, uint32_t generation) {
    SignalWord& word = control_.word(signal.index, options_.local_rank);
    // Both sides use sequentially consistent operations, so either the sleeper sees the generation
    // or this rank sees the sleeper.
    word.generation.store(generation);
    if (word.sleepers.load() != 0) futex_wake_all(word.generation);
}

void HostGroup::await(SignalId signal, int local_rank, uint32_t generation) {
    DSL_CHECK(local_rank >= 0 && local_rank < local_world_size(), "local rank {}", local_rank);
    const SignalWord& word = control_.word(signal.index, local_rank);
    for (int spin = 0; spin < kSpins; ++spin) {
        if (reached(word, generation)) return;
        pause_briefly();
    }
    sleep_until_posted(signal, local_rank, generation);
}

void HostGroup::sleep_until_posted(SignalId signal, int local_rank, uint32_t generation) {
    SignalWord& word = control_.word(signal.index, local_rank);
    const SystemClock clock;
    const TimePoint deadline = clock.now() + options_.time_limit;
    const Sleeper sleeper(word);
    for (;;) {
        const uint32_t current = word.generation.load();
        if (has_reached(current, generation)) return;
        check_alive();
        const Duration left = deadline - clock.now();
        const bool dead = has_ended(local_rank);
        if (dead || left <= Duration::zero()) {
            if (reached(word, generation)) return;  // the rank posted before it ended
            give_up(signal, local_rank, dead);
        }
        futex_wait(word.generation, current, std::min<Duration>(left, kSliceOfSleep));
    }
}

void HostGroup::await_all(SignalId signal, uint32_t generation) {
    for (int rank = 0; rank < local_world_size(); ++rank) await(signal, rank, generation);
}

bool HostGroup::is_posted(SignalId signal, int local_rank, uint32_t generation) const {
    return reached(control_.word(signal.index, local_rank), generation);
}

void HostGroup::barrier() {
    ++barrier_generation_;
    post_internal(kSignalBarrier, barrier_generation_);
    await_all_internal(kSignalBarrier, barrier_generation_);
}

std::vector<std::string> HostGroup::all_gather(std::string_view mine) {
    std::vector<std::string> all(static_cast<size_t>(local_world_size()));
    const MailHeader own{mine.size()};
    for (size_t begin = 0, end = 1; begin < end; begin += kPieceBytes) {
        await_all_internal(kSignalMailRead, mailbox_generation_);  // previous round's messages
        ++mailbox_generation_;
        std::byte* const mailbox = control_.mailbox(options_.local_rank).data();
        std::memcpy(mailbox, &own, sizeof own);
        if (begin < mine.size())
            std::memcpy(mailbox + sizeof own, mine.data() + begin,
                        std::min(kPieceBytes, mine.size() - begin));
        post_internal(kSignalMailFull, mailbox_generation_);
        for (int rank = 0; rank < local_world_size(); ++rank) {
            await(SignalId{kSignalMailFull}, rank, mailbox_generation_);
            const std::byte* const theirs = control_.mailbox(rank).data();
            MailHeader header;
            std::memcpy(&header, theirs, sizeof header);
            const size_t total = header.total_bytes;
            end = std::max(end, total);
            if (begin < total)
                all[rank].append(reinterpret_cast<const char*>(theirs + sizeof header),
                                 std::min(kPieceBytes, total - begin));
        }
        post_internal(kSignalMailRead, mailbox_generation_);
    }
    return all;
}

void HostGroup::broadcast(std::span<std::byte> bytes, int root) {
    const std::span<std::byte> mail = control_.whole_mailbox();
    for (size_t begin = 0; begin < bytes.size(); begin += mail.size()) {
        const size_t piece_bytes = std::min(mail.size(), bytes.size() - begin);
        ++mailbox_generation_;
        if (root == options_.local_rank) {
            await_all_internal(kSignalMailRead, mailbox_generation_ - 1);
            std::memcpy(mail.data(), bytes.data() + begin, piece_bytes);
            post_internal(kSignalMailFull, mailbox_generation_);
        } else {
            post_internal(kSignalMailFull, mailbox_generation_);
            await(SignalId{kSignalMailFull}, root, mailbox_generation_);
            std::memcpy(bytes.data() + begin, mail.data(), piece_bytes);
        }
        post_internal(kSignalMailRead, mailbox_generation_);
    }
}

void HostGroup::poison(std::string_view text) {
    ControlHead& head = control_.head();
    uint32_t expected = static_cast<uint32_t>(PoisonState::kNone);
    if (!head.poison_state.compare_exchange_strong(expected,
                                                   static_cast<uint32_t>(PoisonState::kWriting)))
        return;
    head.poison_text_bytes =
        static_cast<uint32_t>(std::min<size_t>(text.size(), kPoisonTextBytesMax));
    std::memcpy(head.poison_text, text.data(), head.poison_text_bytes);
    head.poison_state.store(static_cast<uint32_t>(PoisonState::kSet));
    wake_poison_waiters();
    for (int rank = 0; rank < local_world_size(); ++rank) {
        for (int signal = 0; signal < layout_.signal_count(); ++signal) {
            SignalWord& word = control_.word(signal, rank);
            if (word.sleepers.load() != 0) futex_wake_all(word.generation);
        }
    }
}

bool HostGroup::poisoned() const {
    return control_.head().poison_state.load() == static_cast<uint32_t>(PoisonState::kSet);
}

bool HostGroup::wait_for_poison(Duration time_limit) const {
    std::atomic<uint32_t>& state = control_.head().poison_state;
    const uint32_t current = state.load();
    if (current != static_cast<uint32_t>(PoisonState::kSet)) futex_wait(state, current, time_limit);
    return poisoned();
}

void HostGroup::wake_poison_waiters() const {
    futex_wake_all(control_.head().poison_state);
}

std::string HostGroup::poison_text() const {
    if (!poisoned()) return {};
    const ControlHead& head = control_.head();
    // Another process wrote the length, so it is not trusted beyond the size of the field.
    return {head.poison_text, std::min(head.poison_text_bytes, kPoisonTextBytesMax)};
}

void HostGroup::check_alive() const {
    if (poisoned()) throw Error(ExitCode::kPeerLost, poison_text());
}

std::string HostGroup::rank_name(int local_rank) const {
    const int rank =
        options_.ranks.empty() ? local_rank : options_.ranks.at(static_cast<size_t>(local_rank));
    return fmt::format("rank {} host {} (local rank {}, process {})", rank, options_.host,
                       local_rank, control_.pid(local_rank).load());
}

bool HostGroup::has_ended(int local_rank) const {
    if (process_fds_.empty())
        return false;  // ranks are still entering: processes are not known yet
    const int32_t pid = control_.pid(local_rank).load();
    if (pid == ::getpid()) return false;
    const UniqueFd& process = process_fds_[local_rank];
    // There is no descriptor if the process ended before it could be opened, or if this kernel does
    // not offer descriptors of processes. Then kill() is used, which reports the end of a process
    // only after its parent has reaped it.
    if (!process.valid()) return ::kill(pid, 0) != 0 && errno == ESRCH;
    pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ended, 1, 0) > 0;
}

void HostGroup::give_up(SignalId signal, int local_rank, bool dead) {
    const std::string& what = layout_.signal_name(signal);
    const std::string text =
        dead ? fmt::format("{} has ended while {} waited for it to reach '{}'",
                           rank_name(local_rank), rank_name(options_.local_rank), what)
             : fmt::format("{} did not reach '{}' within {:.3f} s; {} waited for it",
                           rank_name(local_rank), what, to_milliseconds(options_.time_limit) / 1000,
                           rank_name(options_.local_rank));
    poison(text);
    throw Error(dead ? ExitCode::kPeerLost : ExitCode::kHang, text);
}

}  // namespace dslaunch::runtime
