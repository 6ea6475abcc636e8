// The limits of one rendering of a template, and the meter that counts against them. A template
// comes with a model that others made, and must neither hang nor use up the memory. One thread per
// meter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace dslaunch::text::jinja {

// An error in a template or in the values given to it. The message does not say where the error is;
// the interpreter adds the template's name and the line.
class Fault : public std::runtime_error {
  public:
    explicit Fault(const std::string& message) : std::runtime_error(message) {}
};

// The limits of one rendering.
struct Limits {
    // A step is an expression, or a copy of 64 bytes of text or of 8 elements. The default number
    // of steps takes some seconds. A conversation of 1 MiB needs only about 1 % of these steps.
    int64_t steps_max = 100'000'000;
    // The largest number of bytes in strings, lists and scopes that exist at the same time.
    size_t memory_bytes_max = size_t{512} << 20;
    size_t output_bytes_max = size_t{128} << 20;
};

// The largest number of nested expressions and statements while a template runs, including calls of
// macros.
constexpr int kRunDepthMax = 1500;
// The largest number of nested lists and dicts.
constexpr int kValueDepthMax = 200;
// The largest number of elements in a range, as in Jinja2's sandbox.
constexpr int64_t kRangeLengthMax = 100'000;

// Counts steps and bytes. Throws Fault if a limit is exceeded.
class Meter {
  public:
    explicit Meter(const Limits& limits) : limits_(limits), steps_left_(limits.steps_max) {}
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

    // Count STEPS, or the steps for a copy of BYTES bytes of text or of ITEMS elements.
    void step(int64_t steps = 1) {
        steps_left_ -= steps;
        if (steps_left_ < 0) {
            steps_left_ = 0;
            throw Fault("the template runs too many steps: a loop in it is too long");
        }
    }
    void step_text(size_t bytes) { step(1 + int64_t(bytes / 64)); }
    void step_items(size_t items) { step(1 + int64_t(items / 8)); }

    // Count BYTES bytes as in use, or as no longer in use.
    void hold(size_t bytes) {
        check_bytes(bytes);
        held_bytes_ += bytes;
    }
    void release(size_t bytes) { held_bytes_ -= bytes; }
    // Checks that BYTES more bytes may be used.
    void check_bytes(size_t bytes) const {
        if (bytes > limits_.memory_bytes_max || held_bytes_ > limits_.memory_bytes_max - bytes)
            throw Fault(
                "the template needs too much memory: it builds a text or a list that is too large");
    }
    // Checks that the printed text may have BYTES bytes.
    void check_output(size_t bytes) const {
        if (bytes > limits_.output_bytes_max) throw Fault("the template's output is too large");
    }

  private:
    Limits limits_;
    int64_t steps_left_;
    size_t held_bytes_ = 0;
};

}  // namespace dslaunch::text::jinja
