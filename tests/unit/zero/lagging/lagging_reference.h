// ZenFlow as docs/scale/overlapped-offload.md describes it, computed in one process and element by
// element. Ranks must reach this result to the last bit. It adds the ranks' gradients in the order
// in which a world adds them. Source: Lan et al. 2025, arXiv:2505.12242.
#pragma once

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/zero/exchange/plain_model.h"

namespace dslaunch::testing {

using LagFloats = std::vector<float>;

class LaggingReference {
  public:
    explicit LaggingReference(const TrainingCase& job) : job_(job), adam_(job.optimizer) {
        for (const auto& [name, tensor] : plain_parameters()) {
            Parameter& of = all_[name];
            of.shape = tensor.sizes().vec();
            of.p.assign(tensor.const_data_ptr<float>(),
                        tensor.const_data_ptr<float>() + tensor.numel());
            of.m = of.v = of.waits = LagFloats(of.p.size(), 0.0F);
            of.important.assign(of.p.size(), of.shape.size() < 2 ? 1 : 0);
            of.chosen = of.important;
        }
    }

    // Two switches for controls. LARGEST: the largest units are chosen. DECAYS_BY_STEPS: moments
    // decay once for each step, also in a late update.
    bool largest = true;
    bool decays_by_steps = true;

    // Makes update T, counted from 1. Returns the mean loss.
    double step(int64_t t) {
        const int64_t ranks = job_.world_size();
        loss_ = 0;
        std::map<std::string, LagFloats> gradients;
        int64_t rank = 0;
        for (const int of_host : job_.node_sizes) {
            std::map<std::string, LagFloats> host;
            for (int local = 0; local < of_host; ++local, ++rank)
                add_gradients((t - 1) * ranks + rank, host);
            for (const auto& [name, own] : host) add(own.data(), own.size(), gradients[name]);
        }
        for (auto& [name, own] : gradients)
            for (float& g : own) g *= 1.0F / static_cast<float>(ranks);
        const std::map<std::string, LagFloats> whole = gradients;
        clip(gradients);
        for (auto& [name, of] : all_) update(of, t, gradients.at(name), whole.at(name));
        return loss_ / static_cast<double>(ranks);
    }

    // Continues like a run that resumes with JOB's keys: without overlap, no late update is due.
    void go_on() {
        for (auto& [name, of] : all_) of.due = of.due && job_.lagging.overlap;
    }

    [[nodiscard]] const LagFloats& of(const std::string& name) const { return all_.at(name).p; }

  private:
    struct Parameter {
        std::vector<int64_t> shape;
        LagFloats p, m, v;
        LagFloats waits;                      // gradients of the elements that wait
        int64_t waited = 0;                   // steps whose gradients wait
        std::vector<char> important, chosen;  // now; from the next late update on
        bool due = false;
    };

    void update(Parameter& of, int64_t t, const LagFloats& g, const LagFloats& whole) {
        const LaggingConfig& lag = job_.lagging;
        const int64_t past = t - std::max<int64_t>(1, lag.warm_up_steps);
        const bool is_late = lag.overlap && past > 1 && (past - 1) % lag.update_interval == 0;
        if (of.due && is_late) {
            update_rest(of, t - 1);
            of.important = of.chosen;
            of.due = false;
        }
        const bool ends = past > 0 && past % lag.update_interval == 0;
        const bool takes_all = past <= 0 || (ends && !lag.overlap);
        for (size_t i = 0; i < g.size(); ++i) {
            if (of.important[i] || (takes_all && of.waited == 0)) {
                adam(of, i, g[i], t, 1);
            } else {
                of.waits[i] += g[i];
            }
        }
        ++of.waited;
        if (takes_all) {
            if (of.waited > 1) update_rest(of, t);
            of.waited = 0;
            of.due = false;
        }
        if (past >= 0 && past % lag.select_interval == 0) choose(of, whole);
        if (ends && lag.overlap) {
            of.due = true;
        } else if (takes_all) {
            of.important = of.chosen;
        }
    }

    void update_rest(Parameter& of, int64_t t) const {
        const int64_t steps = std::exchange(of.waited, 0);
        for (size_t i = 0; i < of.p.size(); ++i) {
            if (of.important[i]) continue;
            adam(of, i, of.waits[i] * (1.0F / static_cast<float>(steps)), t, steps);
            of.waits[i] = 0;
        }
    }

    // Chooses units of each block by their sums of squares.
    void choose(Parameter& of, const LagFloats& g) const {
        if (of.shape.size() < 2) return;
        const auto unit = static_cast<size_t>(job_.unit_numel);
        const auto block = static_cast<size_t>(job_.block_numel);
        std::ranges::fill(of.chosen, 0);
        for (size_t begin = 0; begin < g.size(); begin += block) {
            const size_t end = std::min(begin + block, g.size());
            std::vector<std::pair<double, size_t>> units;
            for (size_t u = begin; u < end; u += unit) {
                double squares = 0;
                for (size_t i = u; i < std::min(u + unit, end); ++i) squares += double{g[i]} * g[i];
                units.push_back({largest ? -squares : squares, u});
            }
            std::ranges::sort(units);
            const auto most = static_cast<size_t>(std::max(
                1.0,
                std::floor(job_.lagging.topk_ratio * static_cast<double>(units.size()) + 1e-9)));
            for (size_t k = 0; k < most; ++k)
                for (size_t i = units[k].second; i < std::min(units[k].second + unit, end); ++i)
                    of.chosen[i] = 1;
        }
    }

    // Makes the last of STEPS updates, whose mean gradient is G, with the kernels' rounding.
    void adam(Parameter& of, size_t i, float g, int64_t t, int64_t steps) const {
        const double times = decays_by_steps ? static_cast<double>(steps) : 1;
        const double beta1 = std::pow(adam_.beta1, times), beta2 = std::pow(adam_.beta2, times);
        const auto rest1 = static_cast<float>(1 - beta1), rest2 = static_cast<float>(1 - beta2);
        const double count = static_cast<double>(t);
        const auto root = static_cast<float>(std::sqrt(1 - std::pow(adam_.beta2, count)));
        const auto size = static_cast<float>(adam_.lr / (1 - std::pow(adam_.beta1, count)));
        const bool decoupled = adam_.kind == OptimizerKind::kAdamW;
        const auto keep = static_cast<float>(1 - (decoupled ? adam_.lr * adam_.weight_decay : 0));
        if (!decoupled) g = std::fma(static_cast<float>(adam_.weight_decay), of.p[i], g);
        float& m = of.m[i];
        m = rest1 < 0.5F ? std::fma(rest1, g - m, m) : std::fma(rest1 - 1.0F, g - m, g);
        of.v[i] = std::fma(rest2 * g, g, of.v[i] * static_cast<float>(beta2));
        of.p[i] =
            of.p[i] * keep - size * m / (std::sqrt(of.v[i]) / root + static_cast<float>(adam_.eps));
    }

    static void add(const float* from, size_t numel, LagFloats& sum) {
        if (sum.empty()) return sum.assign(from, from + numel);
        for (size_t i = 0; i < numel; ++i) sum[i] += from[i];
    }

    void add_gradients(int64_t micro_batch, std::map<std::string, LagFloats>& all) {
        Parameters parameters;
        for (auto& [name, own] : all_)
            parameters[name] =
                at::from_blob(own.p.data(), own.shape).clone().set_requires_grad(true);
        const at::Tensor loss = plain_loss(parameters, micro_batch);
        loss.backward();
        loss_ += loss.item<double>();
        for (const auto& [name, tensor] : parameters) {
            const at::Tensor gradient = tensor.grad().contiguous();
            add(gradient.const_data_ptr<float>(), static_cast<size_t>(gradient.numel()), all[name]);
        }
    }

    void clip(std::map<std::string, LagFloats>& gradients) const {
        if (job_.clipping <= 0) return;
        double squares = 0;
        for (const auto& [name, own] : gradients)
            for (const float g : own) squares += double{g} * g;
        const double factor = job_.clipping / (std::sqrt(squares) + 1e-6);
        if (factor >= 1) return;
        for (auto& [name, own] : gradients)
            for (float& g : own) g *= static_cast<float>(factor);
    }

    const TrainingCase& job_;
    OptimizerConfig adam_;
    std::map<std::string, Parameter> all_;
    double loss_ = 0;
};

}  // namespace dslaunch::testing
