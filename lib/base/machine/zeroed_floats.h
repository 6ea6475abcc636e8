// A large array of zeros, allocated from the system as fresh pages, which are zero already and are
// not written again. It is for state that lives as long as a job (optimizer moments). Threads: as
// for any array.
#pragma once

#include <cstdint>
#include <span>

namespace dslaunch {

// An array of fp32 numbers that are zero at first. Its pages are returned to the system when the
// object is destroyed.
class ZeroedFloats {
  public:
    ZeroedFloats() = default;
    // Allocates NUMEL fp32 zeros, with their pages present. Throws Error{kSetup} that gives the
    // number of bytes if memory runs out. REQUIRES: numel >= 0.
    explicit ZeroedFloats(int64_t numel);
    ZeroedFloats(ZeroedFloats&& other) noexcept;
    ZeroedFloats& operator=(ZeroedFloats&& other) noexcept;
    ~ZeroedFloats();

    // Return the array: valid until this object is assigned to or destroyed.
    [[nodiscard]] std::span<float> values() { return values_; }
    [[nodiscard]] std::span<const float> values() const { return values_; }

  private:
    std::span<float> values_;
};

}  // namespace dslaunch
