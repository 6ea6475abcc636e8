#include "base/machine/zeroed_floats.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

ZeroedFloats::ZeroedFloats(int64_t numel) {
    DSL_CHECK(numel >= 0, "{} elements", numel);
    if (numel == 0) return;
    const auto length = static_cast<size_t>(numel) * sizeof(float);
    void* const begin =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto give_up = [length] {
        fail(ExitCode::kSetup,
             "cannot allocate {} of optimizer state: {}; use a higher zero_optimization.stage to "
             "divide it among more ranks, use a smaller model or more hosts, or raise the memory "
             "limit of this job",
             to_text(Bytes{static_cast<int64_t>(length)}), errno_text(errno));
    };
    if (begin == MAP_FAILED) give_up();
    values_ = {static_cast<float*>(begin), static_cast<size_t>(numel)};
    // No huge pages are requested: updates of the states are as fast with small pages, and in
    // fragmented memory huge pages take many times as long to allocate. Before Linux 5.14 the call
    // fails with EINVAL, and the pages are allocated when they are first written.
    if (::madvise(begin, length, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        const int error_number = errno;
        ::munmap(begin, length);
        values_ = {};
        errno = error_number;
        give_up();
    }
}

ZeroedFloats::ZeroedFloats(ZeroedFloats&& other) noexcept
    : values_(std::exchange(other.values_, {})) {}

ZeroedFloats& ZeroedFloats::operator=(ZeroedFloats&& other) noexcept {
    std::swap(values_, other.values_);
    return *this;
}

ZeroedFloats::~ZeroedFloats() {
    if (!values_.empty()) ::munmap(values_.data(), values_.size_bytes());
}

}  // namespace dslaunch
