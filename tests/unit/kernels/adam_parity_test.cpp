// The steps, compared with PyTorch 2.11's fused CPU kernels; tests/parity/adam_reference.py made
// the file.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/flat_optimizer.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::storage;

namespace {

constexpr size_t kNumel = 10'007, kSteps = 10, kStride = 61;
constexpr size_t kSampled = (kNumel + kStride - 1) / kStride;

// Returns the numbers of inputs() of adam_reference.py, which are exact in fp32.
std::vector<float> inputs(uint64_t salt) {
    std::vector<float> out;
    for (uint64_t i = 0; i < kNumel; ++i) {
        const uint64_t bits = ((i * 2654435761 + salt * 2246822519) % (uint64_t{1} << 32)) >> 8;
        const double value = static_cast<double>(bits) / 8388608.0 - 1;
        out.push_back(static_cast<float>(std::ldexp(value, -static_cast<int>(i % 12))));
    }
    return out;
}

std::vector<float> tensor(const SafetensorsFile& file, const std::string& name) {
    const SafetensorsEntry* entry = file.find(name);
    REQUIRE(entry != nullptr);
    std::vector<float> out(entry->bytes.size() / sizeof(float));
    std::memcpy(out.data(), entry->bytes.data(), entry->bytes.size());
    return out;
}

// PyTorch's vectors have 16 elements. It computes the rest of a tensor one by one, and rounds
// products there that it fuses in vectors. In the rest, our bits may differ by one or two roundings
// per step.
constexpr size_t kVectorEnd = kNumel / 16 * 16;
constexpr double kTailUlpsMax = 2.0 * kSteps;

// Returns |found - expected| in units of EXPECTED's last place.
double ulps(float found, float expected) {
    if (found == expected) return 0;
    return std::abs(double{found} - double{expected}) /
           std::ldexp(1.0, std::ilogb(expected) - std::numeric_limits<float>::digits + 1);
}

// Checks every STRIDE-th element of FOUND against EXPECTED.
void require_equal(const std::vector<float>& found, const float* expected, size_t stride) {
    for (size_t i = 0; i < found.size(); i += stride, ++expected) {
        INFO("element " << i << ": " << found[i] << " for PyTorch's " << *expected);
        if (i < kVectorEnd)
            REQUIRE(std::memcmp(&found[i], expected, sizeof(float)) == 0);
        else
            REQUIRE(ulps(found[i], *expected) <= kTailUlpsMax);
    }
}

struct Case {
    std::string name;
    double weight_decay;
    bool decoupled;
    double beta1;
};

}  // namespace

TEST_CASE("ten steps give the bits of PyTorch's fused Adam and AdamW") {
    const SafetensorsFile file(std::string(test::source_dir()) +
                               "/tests/parity/adam_reference.safetensors");
    const Case table[] = {{"adamw", 0.1, true, 0.9},
                          {"adam", 0.0, false, 0.9},
                          {"adam_l2", 0.1, false, 0.9},
                          {"adamw_low_beta1", 0.1, true, 0.3}};
    for (const Case& row : table) {
        INFO(row.name);
        const std::vector<float> sampled = tensor(file, row.name + ".sampled");
        REQUIRE(sampled.size() == kSteps * 3 * kSampled);
        std::vector<float> p = inputs(0), m(kNumel), v(kNumel);
        const float* expected = sampled.data();
        for (int64_t t = 1; t <= int64_t{kSteps}; ++t) {
            const std::vector<float> g = inputs(static_cast<uint64_t>(t));
            const float* source[] = {g.data()};
            const AdamStep step{.lr = 1e-2,
                                .beta1 = row.beta1,
                                .weight_decay = row.weight_decay,
                                .decoupled_decay = row.decoupled,
                                .step = t};
            adam_step({.numel = int64_t{kNumel},
                       .gradients = source,
                       .parameters = p,
                       .first = m,
                       .second = v},
                      step);
            for (const std::vector<float>* found : {&p, &m, &v}) {
                require_equal(*found, expected, kStride);
                expected += kSampled;
            }
        }
        const std::string last = row.name + ".last_parameters";
        if (file.find(last) != nullptr) require_equal(p, tensor(file, last).data(), 1);
    }
}

TEST_CASE("ten steps give the bits of PyTorch's fused Adam and AdamW with amsgrad") {
    const SafetensorsFile file(std::string(test::source_dir()) +
                               "/tests/parity/adam_reference.safetensors");
    for (const bool decoupled : {true, false}) {
        const std::string name = decoupled ? "adamw_amsgrad" : "adam_amsgrad";
        INFO(name);
        const std::vector<float> sampled = tensor(file, name + ".sampled");
        REQUIRE(sampled.size() == kSteps * 4 * kSampled);
        std::vector<float> p = inputs(0), m(kNumel), v(kNumel), largest(kNumel);
        const float* expected = sampled.data();
        for (int64_t t = 1; t <= int64_t{kSteps}; ++t) {
            const std::vector<float> g = inputs(static_cast<uint64_t>(t));
            const float* source[] = {g.data()};
            adam_step({.numel = int64_t{kNumel},
                       .gradients = source,
                       .parameters = p,
                       .first = m,
                       .second = v,
                       .third = largest},
                      {.lr = 1e-2,
                       .beta2 = 0.5,
                       .weight_decay = 0.1,
                       .decoupled_decay = decoupled,
                       .step = t,
                       .amsgrad = true});
            for (const std::vector<float>* found : {&p, &m, &v, &largest}) {
                require_equal(*found, expected, kStride);
                expected += kSampled;
            }
        }
        CHECK(largest != v);
    }
}

namespace {

struct Other {
    std::string name;
    void (*update)(const FlatRange& range, int64_t step);  // one update of adam_reference.py
    float first_state;
};

const Other kOthers[] = {
    {"adagrad",
     [](const FlatRange& range, int64_t step) {
         adagrad_step(range, {.lr = 1e-2, .lr_decay = 0.1, .weight_decay = 0.1, .step = step});
     },
     0.5F},
    {"sgd_nesterov",
     [](const FlatRange& range, int64_t step) {
         sgd_step(range, {.lr = 1e-2,
                          .momentum = 0.9,
                          .weight_decay = 0.1,
                          .nesterov = true,
                          .first_step = step == 1});
     },
     0},
    {"sgd_dampening",
     [](const FlatRange& range, int64_t step) {
         sgd_step(range, {.lr = 1e-2, .momentum = 0.9, .dampening = 0.3, .first_step = step == 1});
     },
     0},
    {"lion",
     [](const FlatRange& range, int64_t /*step*/) {
         lion_step(range, {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1});
     },
     0},
};

}  // namespace

TEST_CASE("ten steps give the bits of PyTorch's Adagrad and SGD and of Lion") {
    const SafetensorsFile file(std::string(test::source_dir()) +
                               "/tests/parity/adam_reference.safetensors");
    for (const Other& row : kOthers) {
        INFO(row.name);
        const std::vector<float> sampled = tensor(file, row.name + ".sampled");
        REQUIRE(sampled.size() == kSteps * 2 * kSampled);
        const float* expected = sampled.data();
        std::vector<float> p = inputs(0), state(kNumel, row.first_state);
        for (int64_t t = 1; t <= int64_t{kSteps}; ++t) {
            const std::vector<float> g = inputs(static_cast<uint64_t>(t));
            const float* source[] = {g.data()};
            row.update(
                {.numel = int64_t{kNumel}, .gradients = source, .parameters = p, .first = state},
                t);
            for (const std::vector<float>* found : {&p, &state}) {
                require_equal(*found, expected, kStride);
                expected += kSampled;
            }
        }
    }
}
