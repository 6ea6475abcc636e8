// Cuts the bytes that a worker writes into lines. A line is never longer than kLineBytesMax: a
// longer one is cut there and goes on as the next.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr size_t kLineBytesMax = 64U << 10;

class LineSplitter {
  public:
    // The whole lines that BYTES completes, each with its newline; the rest waits.
    [[nodiscard]] std::string add(std::string_view bytes);
    // The rest that waits, with a newline added; empty when nothing does: a worker may end within a
    // line.
    [[nodiscard]] std::string finish();

  private:
    std::string rest_;
};

}  // namespace dslaunch::launch
