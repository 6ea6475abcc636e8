// A large array of zeros, taken from the system as fresh pages: nobody writes the zeros a second
// time. For state that lives as long as a job (optimizer moments). Threads: as any array.
#pragma once

#include <cstdint>
#include <span>

namespace dslaunch {

class ZeroedFloats {
  public:
    ZeroedFloats() = default;
    // Takes [numel] fp32 zeros with their pages present. Throws Error{kSetup} that names the bytes
    // when memory runs out. REQUIRES: numel >= 0.
    explicit ZeroedFloats(int64_t numel);
    ZeroedFloats(ZeroedFloats&& other) noexcept;
    ZeroedFloats& operator=(ZeroedFloats&& other) noexcept;
    ~ZeroedFloats();

    [[nodiscard]] std::span<float> values() { return values_; }
    [[nodiscard]] std::span<const float> values() const { return values_; }

  private:
    std::span<float> values_;
};

}  // namespace dslaunch
