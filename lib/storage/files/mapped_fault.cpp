#include "storage/files/mapped_fault.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/text.h"

namespace dslaunch::storage {
namespace {

// A watched mapping, which a signal handler reads. It is valid while BEGIN is not 0; BEGIN is set
// last and cleared first. A thread that causes a fault is still using the mapping, so its entry is
// not removed meanwhile.
struct Watched {
    std::atomic<uintptr_t> begin = 0;
    std::atomic<uintptr_t> end = 0;
    std::atomic<const char*> path = nullptr;
    std::atomic<int> code = 0;
    std::atomic<bool> taken = false;
};

constexpr int kEntries = 16384;

// Signal handlers belong to the whole process, so the handler's data are global.
std::array<Watched, kEntries> watched;
std::atomic<unsigned> next_entry = 0;
struct sigaction handler_before {};

class Line {
  public:
    void add(std::string_view text) {
        const size_t part = std::min(text.size(), bytes_.size() - length_);
        std::memcpy(bytes_.data() + length_, text.data(), part);
        length_ += part;
    }
    void add(uintptr_t number) {
        std::array<char, 24> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
        add({digits.data(), static_cast<size_t>(end - digits.data())});
    }
    void write() const {
        // A failed write to stderr has no remedy.
        if (::write(STDERR_FILENO, bytes_.data(), length_) < 0) return;
    }

  private:
    std::array<char, 8192> bytes_{};
    size_t length_ = 0;
};

[[noreturn]] void end_process(const Watched& entry, uintptr_t address) {
    Line line;
    line.add(::program_invocation_short_name);
    line.add(": error: ");
    line.add(entry.path.load());
    line.add(": cannot be read at offset ");
    line.add(address - entry.begin.load());
    line.add(": its disk failed, or the file was truncated while it was in use\n");
    line.write();
    ::_exit(entry.code.load());
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (const Watched& entry : watched) {
        const uintptr_t begin = entry.begin.load(std::memory_order_acquire);
        if (begin != 0 && begin <= address && address < entry.end.load())
            end_process(entry, address);
    }
    if ((handler_before.sa_flags & SA_SIGINFO) != 0)
        return handler_before.sa_sigaction(signal, info, context);
    // After this returns, the access is repeated and fails again, now in the earlier handler.
    static_cast<void>(::sigaction(SIGBUS, &handler_before, nullptr));
}

uintptr_t address_of(std::span<const std::byte> bytes) {
    return reinterpret_cast<uintptr_t>(bytes.data());
}

Watched* find(std::span<const std::byte> bytes) {
    if (bytes.empty()) return nullptr;
    const auto found = std::ranges::find_if(watched, [&](const Watched& entry) {
        return entry.begin.load(std::memory_order_acquire) == address_of(bytes);
    });
    return found == watched.end() ? nullptr : &*found;
}

void set_handler() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    static_cast<void>(::sigaction(SIGBUS, &action, &handler_before));
}

}  // namespace

void watch_mapping(std::span<const std::byte> bytes, const std::string& path, ExitCode code) {
    static std::once_flag once;
    std::call_once(once, set_handler);
    for (int tried = 0; tried < kEntries; ++tried) {
        Watched& entry = watched[next_entry++ % kEntries];
        if (entry.taken.exchange(true)) continue;
        const uintptr_t begin = address_of(bytes);
        entry.path = ::strdup(printable(path).c_str());
        entry.code = static_cast<int>(code);
        entry.end = begin + bytes.size();
        entry.begin.store(begin, std::memory_order_release);
        return;
    }
}

void set_fault_code(std::span<const std::byte> bytes, ExitCode code) noexcept {
    if (Watched* entry = find(bytes)) entry->code = static_cast<int>(code);
}

void unwatch_mapping(std::span<const std::byte> bytes) noexcept {
    Watched* gone = find(bytes);
    if (gone == nullptr) return;
    gone->begin = 0;
    std::free(const_cast<char*>(gone->path.exchange(nullptr)));
    gone->taken = false;
}

}  // namespace dslaunch::storage
