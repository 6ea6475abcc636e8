// The common part of the 1-bit optimizers in one_bit_reference.h: hosts in one process that each
// train a copy of plain_model.h, the gradients of their ranks, and the average of their values in 1
// bit. Averages are computed element by element, with the rounding of the kernels.
#pragma once

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "unit/zero/exchange/plain_model.h"

namespace dslaunch::testing {

using Floats = std::vector<float>;

// One parameter with its copies on all hosts.
struct OneBitParameter {
    std::vector<Floats> p, m;  // by host
    Floats met;                // p at the hosts' last meeting
    Floats v;
    std::vector<Floats> worker_error;  // by host
    Floats server_error;
    Floats fresh = {};  // used by 1-bit LAMB
    float ratio_sum = 0, ratio_weights = 0, factor = 0;
};

class OneBitHosts {
  public:
    explicit OneBitHosts(const TrainingCase& job)
        : job_(job), hosts_(job.node_sizes.size()), config_(job.optimizer) {
        for (const auto& [name, tensor] : plain_parameters()) {
            const Floats start(tensor.const_data_ptr<float>(),
                               tensor.const_data_ptr<float>() + tensor.numel());
            const Floats zero(start.size(), 0.0F);
            const std::vector<Floats> zeros(hosts_, zero);
            shapes_[name] = tensor.sizes().vec();
            all_[name] = {std::vector<Floats>(hosts_, start), zeros, start, zero, zeros, zero};
        }
    }

    // False: error feedback is off, so that a test can show its effect.
    bool feeds_back = true;

    [[nodiscard]] const OneBitParameter& of(const std::string& name) const { return all_.at(name); }

  protected:
    // Returns each host's sums of its ranks' gradients.
    std::map<std::string, std::vector<Floats>> gradients_of_hosts(int64_t step) {
        std::map<std::string, std::vector<Floats>> all;
        const int64_t ranks = job_.world_size();
        loss_ = 0;
        int64_t rank = 0;
        for (size_t host = 0; host < hosts_; ++host) {
            for (int local = 0; local < job_.node_sizes[host]; ++local, ++rank)
                add_gradients(host, step * ranks + rank, local == 0, all);
        }
        // With this factor, the mean over hosts is the mean over all ranks.
        const float factor = static_cast<float>(hosts_) / static_cast<float>(ranks);
        for (auto& [name, hosts] : all) {
            if (exact_) {
                hosts.assign(hosts_, sum(hosts));
                for (Floats& own : hosts)
                    for (float& g : own) g *= 1.0F / static_cast<float>(ranks);
                continue;
            }
            for (Floats& own : hosts)
                for (float& g : own) g *= factor;
        }
        loss_ /= static_cast<double>(ranks);
        return all;
    }

    void add_gradients(size_t host, int64_t micro_batch, bool first,
                       std::map<std::string, std::vector<Floats>>& all) {
        Parameters parameters;
        for (const auto& [name, own] : all_)
            parameters[name] = at::from_blob(const_cast<float*>(own.p[host].data()), shapes_[name])
                                   .clone()
                                   .set_requires_grad(true);
        const at::Tensor loss = plain_loss(parameters, micro_batch);
        loss.backward();
        loss_ += loss.item<double>();
        for (const auto& [name, tensor] : parameters) {
            std::vector<Floats>& hosts = all[name];
            hosts.resize(hosts_);
            const at::Tensor gradient = tensor.grad().contiguous();
            const float* g = gradient.const_data_ptr<float>();
            Floats& sum = hosts[host];
            sum.resize(static_cast<size_t>(gradient.numel()));
            for (size_t i = 0; i < sum.size(); ++i) sum[i] = first ? g[i] : sum[i] + g[i];
        }
    }

    // Clips by the norm of the mean gradient if hosts share it, otherwise by the root of the mean
    // of the hosts' squared norms.
    void clip(std::map<std::string, std::vector<Floats>>& gradients) {
        if (job_.clipping <= 0) return;
        double squares = 0;
        for (const auto& [name, hosts] : gradients)
            for (const Floats& own : hosts)
                for (const float g : own) squares += double{g} * g / static_cast<double>(hosts_);
        const double factor = job_.clipping / (std::sqrt(squares) + 1e-6);
        if (factor >= 1) return;
        for (auto& [name, hosts] : gradients)
            for (Floats& own : hosts)
                for (float& g : own) g *= static_cast<float>(factor);
    }

    [[nodiscard]] static Floats sum(const std::vector<Floats>& hosts) {
        Floats sum = hosts[0];
        for (size_t h = 1; h < hosts.size(); ++h)
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += hosts[h][i];
        return sum;
    }

    // Compresses elements [begin, begin + numel) of VALUES in place, as in section 4.
    void compress(Floats& values, float factor, Floats& error, size_t begin, size_t numel) const {
        double lanes[16] = {};
        for (size_t i = 0; i < numel; ++i) {
            float& value = values[begin + i];
            value = value * factor + error[begin + i];
            lanes[i % 16] += double{value} * value;
        }
        double squares = 0;
        for (const double lane : lanes) squares += lane;
        const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(numel)));
        for (size_t i = begin; i < begin + numel; ++i) {
            const float told = values[i] >= 0 ? scale : -scale;
            error[i] = feeds_back ? values[i] - told : 0.0F;
            values[i] = told;
        }
    }

    // Returns the average of VALUES over hosts, computed block by block.
    Floats average(std::vector<Floats> values, OneBitParameter& of) const {
        const size_t numel = of.v.size();
        const auto blocks = static_cast<size_t>(job_.block_numel);
        for (size_t begin = 0; begin < numel; begin += blocks)
            for (size_t h = 0; h < hosts_; ++h)
                compress(values[h], 1.0F, of.worker_error[h], begin,
                         std::min(blocks, numel - begin));
        Floats averages = sum(values);
        for (size_t begin = 0; begin < numel; begin += blocks)
            compress(averages, 1.0F / static_cast<float>(hosts_), of.server_error, begin,
                     std::min(blocks, numel - begin));
        return averages;
    }

    void mix(Floats& m, const Floats& g) const {
        const auto rest = static_cast<float>(1 - config_.beta1);
        for (size_t i = 0; i < m.size(); ++i) m[i] = std::fma(rest, g[i] - m[i], m[i]);
    }
    [[nodiscard]] float denominator(const OneBitParameter& of, size_t i) const {
        return std::sqrt(of.v[i]) + static_cast<float>(config_.eps);
    }
    // Moves a host's parameters.
    void move(OneBitParameter& of, size_t host) const {
        const auto keep = static_cast<float>(1 - config_.lr * config_.weight_decay);
        const auto lr = static_cast<float>(config_.lr);
        for (size_t i = 0; i < of.v.size(); ++i) {
            if (of.v[i] == 0) of.m[host][i] = 0;  // DeepSpeed's exp_avg_mask
            of.p[host][i] = of.p[host][i] * keep - lr * of.m[host][i] / denominator(of, i);
        }
    }
    // Makes an update with GRADIENTS that are the same on all hosts.
    void exact(OneBitParameter& of, const std::vector<Floats>& gradients) const {
        const auto rest = static_cast<float>(1 - config_.beta2);
        const auto beta2 = static_cast<float>(config_.beta2);
        const Floats& g = gradients[0];
        for (size_t i = 0; i < g.size(); ++i)
            of.v[i] = std::fma(rest * g[i], g[i], of.v[i] * beta2);
        for (size_t h = 0; h < hosts_; ++h) {
            mix(of.m[h], g);
            move(of, h);
        }
        of.met = of.p[0];
    }

    const TrainingCase& job_;
    size_t hosts_;
    OptimizerConfig config_;
    std::map<std::string, std::vector<int64_t>> shapes_;
    std::map<std::string, OneBitParameter> all_;
    double loss_ = 0;
    bool exact_ = true;  // true if the next step's gradients are shared in full
};

}  // namespace dslaunch::testing
