// Times that a test collects and prints in one line: count, median, 99th percentile, largest.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace dslaunch::test {

class Figures {
  public:
    void add(double milliseconds) { values_.push_back(milliseconds); }
    [[nodiscard]] size_t numel() const { return values_.size(); }
    // Returns the value that a part SHARE of all values do not exceed; 0 if there are no values.
    [[nodiscard]] double at(double share) const {
        if (values_.empty()) return 0;
        std::vector<double> sorted = values_;
        std::sort(sorted.begin(), sorted.end());
        const auto index =
            static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
        return sorted[index];
    }
    [[nodiscard]] double largest() const { return at(1.0); }
    void print(const std::string& what) const {
        std::printf("%s: %zu runs, median %.0f ms, p99 %.0f ms, max %.0f ms\n", what.c_str(),
                    numel(), at(0.5), at(0.99), largest());
        std::fflush(stdout);
    }

  private:
    std::vector<double> values_;
};

inline double milliseconds_since(std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from)
        .count();
}

}  // namespace dslaunch::test
