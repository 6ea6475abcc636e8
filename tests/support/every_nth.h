// Selects some cases of a matrix of test cases: every Nth case in `make test`, all cases in `make
// test-long`, which runs the test cases tagged [matrix] with DSL_WHOLE_MATRIX=1.
#pragma once

#include <cstdlib>

namespace dslaunch::test {

inline bool whole_matrix() {
    return std::getenv("DSL_WHOLE_MATRIX") != nullptr;
}

// Selects every Nth case, beginning with the first. If N has no common divisor with the length of
// any axis of the matrix, each value of each axis is selected, each time with other values on the
// other axes.
class EveryNth {
  public:
    explicit EveryNth(int n) : n_(whole_matrix() ? 1 : n) {}
    [[nodiscard]] bool takes_next() { return number_++ % n_ == 0; }

  private:
    int n_;
    int number_ = 0;
};

}  // namespace dslaunch::test
