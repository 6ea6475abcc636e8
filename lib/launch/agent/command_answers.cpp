#include "launch/agent/command_answers.h"

#include "launch/agent/device_report.h"
#include "launch/agent/fetch_answer.h"
#include "launch/agent/leftover_processes.h"
#include "launch/agent/node_report.h"

namespace dslaunch::launch {

std::optional<Frame> answer_command(const Frame& frame,
                                    const std::function<void()>& while_waiting) {
    switch (frame.kind) {
        case FrameKind::kReportRequest:
            return Frame{FrameKind::kNodeReport,
                         encode(report_node(decode_report_request(frame.payload)))};
        case FrameKind::kStopJob:
            return Frame{FrameKind::kJobStopped,
                         encode(StopJobReply{
                             end_leftovers(decode_stop_request(frame.payload), while_waiting)})};
        case FrameKind::kDevices:
            return Frame{FrameKind::kDeviceReport,
                         encode(report_devices(decode_device_request(frame.payload)))};
        case FrameKind::kEndProcess:
            return Frame{FrameKind::kProcessEnded,
                         encode(end_process(decode_end_request(frame.payload), while_waiting))};
        case FrameKind::kFetch:
            return Frame{FrameKind::kFetched,
                         encode(answer_fetch(decode_fetch_request(frame.payload), while_waiting))};
        default:
            return std::nullopt;
    }
}

}  // namespace dslaunch::launch
