#include "plan/pipeline/stage_work.h"

namespace dslaunch::plan {

std::vector<StagePart> parts_of(const StageWork& work, size_t segments) {
    if (work.in_pipeline()) return work.parts;
    StagePart whole;
    whole.segments = {0, static_cast<int>(segments)};
    return {whole};
}

size_t part_at(const std::vector<StagePart>& parts, int segment) {
    size_t part = 0;
    while (part + 1 < parts.size() && segment >= parts[part].segments.end) ++part;
    return part;
}

int segment_of_model(const std::vector<StagePart>& parts, int segment) {
    if (parts.empty()) return segment;
    const StagePart& part = parts[part_at(parts, segment)];
    return part.first_segment + segment - part.segments.begin;
}

}  // namespace dslaunch::plan
