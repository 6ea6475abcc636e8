// A timeline as a picture: one row a lane (a stage of a pipeline, a lane of a rank), one box for
// what ran in it, grey where it stood still. Data path: simulator or trace -> [here] -> a
// file that every browser shows. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::plan {

struct TimelineSpan {
    double begin_s = 0;
    double end_s = 0;
    int kind = 0;      // index into Timeline::kinds
    int shade = 0;     // from 0, each lighter than the one before: chunks
    std::string mark;  // in the box where it has room: "3"
    std::string note;  // shown when a pointer rests on the box
};

struct TimelineLane {
    std::string name;
    std::string remark;  // behind the lane: "idle 27 %"
    std::vector<TimelineSpan> spans;
};

struct Timeline {
    std::string title;
    std::vector<std::string> kinds;   // for the legend; each has a colour, from the sixth on again
    std::vector<std::string> shades;  // for the legend, where there are several
    std::vector<TimelineLane> lanes;
};

// One SVG that needs no other file: about 150 bytes a span. It is as wide as its boxes need to hold
// their marks, within limits, and fits itself to a narrower page. Beyond kTimelineLanesMax lanes it
// says how many are left out. Texts may hold anything; times begin at 0.
[[nodiscard]] std::string timeline_svg(const Timeline& timeline);
inline constexpr int kTimelineLanesMax = 64;

}  // namespace dslaunch::plan
