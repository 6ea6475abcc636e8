// A share of a matrix of cases: every Nth of them in `make test`, all in `make test-long`, which
// runs the test cases tagged [matrix] with DSL_WHOLE_MATRIX=1.
#pragma once

#include <cstdlib>

namespace dslaunch::test {

inline bool whole_matrix() {
    return std::getenv("DSL_WHOLE_MATRIX") != nullptr;
}

// Takes every Nth case, the first one included. An N that has no divisor in common with the lengths
// of the matrix's axes meets each value of each axis, each time beside others.
class EveryNth {
  public:
    explicit EveryNth(int n) : n_(whole_matrix() ? 1 : n) {}
    [[nodiscard]] bool takes_next() { return number_++ % n_ == 0; }

  private:
    int n_;
    int number_ = 0;
};

}  // namespace dslaunch::test
