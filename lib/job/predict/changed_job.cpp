#include "job/predict/changed_job.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "job/setup/job_layout.h"

namespace dslaunch::job {
namespace {

// Returns the bytes of the largest parameter gradient that the backward of SEGMENT makes.
Bytes largest_gradient(const plan::ModelInfo& info, const plan::SegmentInfo& segment) {
    Bytes largest;
    for (const int p : segment.parameters) {
        const plan::ParameterInfo& parameter = info.parameters[p];
        if (parameter.trainable)
            largest = std::max(largest, Bytes{parameter.numel * parameter.element_bytes});
    }
    return largest;
}

// Returns INFO for a micro batch whose number of rows is multiplied by `numerator / denominator`.
// Assumes that all rows need the same memory.
plan::ModelInfo with_rows(plan::ModelInfo info, int64_t numerator, int64_t denominator) {
    const auto scale = [&](Bytes& bytes) { bytes.value = bytes.value * numerator / denominator; };
    // The gradients of parameters do not become smaller with fewer rows.
    const auto scale_above = [&](Bytes& bytes, Bytes fixed) {
        fixed = std::min(bytes, fixed);
        Bytes rest = bytes - fixed;
        scale(rest);
        bytes = fixed + rest;
    };
    for (plan::SegmentInfo& segment : info.segments) {
        scale(segment.output_bytes);
        scale(segment.activation_bytes);
        scale(segment.forward_peak);
        scale(segment.forward_blocks);
        scale_above(segment.backward_peak, largest_gradient(info, segment));
        scale_above(segment.backward_blocks, largest_gradient(info, segment));
        segment.forward_flops = segment.forward_flops * numerator / denominator;
    }
    scale(info.batch_bytes);
    return info;
}

}  // namespace

std::optional<JobSetup> changed_job(const JobSetup& setup, const runtime::Topology& place,
                                    config::RunConfig config) {
    JobSetup other;
    other.on_gpu = setup.on_gpu;
    other.resolved.config = std::move(config);
    other.sharing.of_first = setup.sharing.of_first;
    other.model_info = with_rows(setup.model_info, other.config().batch.micro_rows,
                                 setup.config().batch.micro_rows);
    try {
        lay_out_job(other, place);
    } catch (const Error& error) {
        if (error.code() != ExitCode::kConfig) throw;
        return {};  // a config that would be refused is no choice
    }
    if (!why_no_plan(other).empty()) return {};
    other.plan = make_plan(other, other.place.of_stage);
    return other;
}

}  // namespace dslaunch::job
