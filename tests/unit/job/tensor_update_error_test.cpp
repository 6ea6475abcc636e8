// The formulas by which verify checks updates of whole tensors, compared with first steps that were
// computed by hand.
#include "job/verify/update_error.h"

#include <ATen/Functions.h>

#include <cmath>
#include <vector>

#include "support/catch.h"

namespace dslaunch::job {
namespace {

using config::OptimizerConfig;
using config::OptimizerKind;

// A diagonal matrix has the identity's singular vectors, whatever its values.
struct Case {
    std::vector<float> gradients{4, 0, 0, 4};
    std::vector<float> p{3, 0, 0, 4}, m{0, 0, 0, 0}, v{0, 0, 0, 0};
    std::vector<float> next_p, next_m, next_v;
};

double error_of(const OptimizerConfig& config, const Case& of) {
    const at::Tensor like = at::empty({2, 2});
    return tensor_update_error(config, {like, of.gradients, 0.5, 0.1, 1}, {of.p, of.m, of.v},
                               {of.next_p, of.next_m, of.next_v})
        .error;
}

// Checks that RIGHT passes, and that each value that is moved by BY is found: this is more than
// rounding explains.
void check_each_value(const OptimizerConfig& config, const Case& right, float by) {
    CHECK(error_of(config, right) <= 1);
    for (std::vector<float> Case::*values : {&Case::next_p, &Case::next_m})
        for (size_t i = 0; i < right.p.size(); ++i) {
            Case wrong = right;
            (wrong.*values)[i] += by;
            CAPTURE(i);
            CHECK(error_of(config, wrong) > 1);
        }
}

}  // namespace

TEST_CASE("verify knows LAMB's update") {
    OptimizerConfig config;
    config.kind = OptimizerKind::kLamb;
    config.beta1 = 0.5;
    config.beta2 = 0.75;
    config.eps = 0;
    config.bias_correction = false;
    config.min_coeff = 0.01;
    config.max_coeff = 10;
    // m = 0.5 * 2 = 1, v = 0.25 * 4 = 1: the direction is 1 on the diagonal. Its norm is sqrt(2),
    // the weights' norm is 5. Elsewhere the direction is 0 / 0, so eps is needed there.
    config.eps = 1e-8;
    Case of;
    const auto step = static_cast<float>(0.1 * 5 / std::sqrt(2.0));
    of.next_m = {1, 0, 0, 1};
    of.next_v = {1, 0, 0, 1};
    of.next_p = {3 - step, 0, 0, 4 - step};
    check_each_value(config, of, 1e-3F);
    // The ratio 5 / sqrt(2) is bounded.
    config.max_coeff = 2;
    CHECK(error_of(config, of) > 1);
    of.next_p = {2.8F, 0, 0, 3.8F};
    check_each_value(config, of, 1e-3F);
}

TEST_CASE("verify knows Muon's update") {
    OptimizerConfig config;
    config.kind = OptimizerKind::kMuon;
    config.momentum = 0.5;
    config.weight_decay = 0.5;
    // The gradient 2 gives the momentum 1; the direction is a multiple of the identity. Its
    // singular values begin at 1 / sqrt(2) and pass five times through the quintic.
    double s = 1 / std::sqrt(2.0);
    for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
    Case of;
    const auto step = static_cast<float>(0.1 * s);
    of.next_m = {1, 0, 0, 1};
    of.next_v = {0, 0, 0, 0};
    of.next_p = {3 * 0.95F - step, 0, 0, 4 * 0.95F - step};
    check_each_value(config, of, 1e-3F);
}

}  // namespace dslaunch::job
