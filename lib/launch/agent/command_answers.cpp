#include "launch/agent/command_answers.h"

#include "base/error.h"
#include "launch/agent/device_report.h"
#include "launch/agent/end_process.h"
#include "launch/agent/leftover_processes.h"
#include "launch/agent/machine_facts.h"
#include "launch/files/file_facts.h"
#include "launch/files/sent_file.h"

namespace dslaunch::launch {
namespace {

std::string payload_of(const FetchRequest& request, const std::function<void()>& alive) {
    if (request.part == FetchPart::kSize && is_missing(request.path)) {
        PushOffer none;
        none.bytes = -1;
        return encode(none);
    }
    const SentFile file(request.path);
    switch (request.part) {
        case FetchPart::kSize:
            return encode(file.facts());
        case FetchPart::kOffer: {
            PushOffer offer = file.facts();
            offer.id = request.id;
            offer.path = request.path;
            HashCache cache(HashCache::default_path());
            offer.hash = file.hash(cache, alive);
            cache.save();
            return encode(offer);
        }
        case FetchPart::kChunks:
            return encode(PushChunks{request.id, file.chunk_hashes(alive)});
        case FetchPart::kPiece:
            break;
    }
    if (request.offset < 0 || request.bytes < 1 || request.bytes > kPushPieceBytes)
        fail(ExitCode::kInternal, "a piece of a file cannot have {} bytes at offset {}",
             request.bytes, request.offset);
    return encode(PushPiece{request.id, request.offset, file.read(request.offset, request.bytes)});
}

}  // namespace

std::optional<Frame> answer_command(const Frame& frame,
                                    const std::function<void()>& while_waiting) {
    switch (frame.kind) {
        case FrameKind::kReportRequest:
            return Frame{FrameKind::kNodeReport,
                         encode(report_node(decode<ReportRequest>(frame.payload)))};
        case FrameKind::kStopJob:
            return Frame{FrameKind::kJobStopped,
                         encode(StopJobReply{
                             end_leftovers(decode<StopJobRequest>(frame.payload), while_waiting)})};
        case FrameKind::kDevices:
            return Frame{FrameKind::kDeviceReport,
                         encode(report_devices(decode<DeviceUseRequest>(frame.payload)))};
        case FrameKind::kEndProcess:
            return Frame{
                FrameKind::kProcessEnded,
                encode(end_process(decode<EndProcessRequest>(frame.payload), while_waiting))};
        case FrameKind::kFetch:
            return Frame{FrameKind::kFetched,
                         encode(answer_fetch(decode<FetchRequest>(frame.payload), while_waiting))};
        default:
            return std::nullopt;
    }
}

FetchReply answer_fetch(const FetchRequest& request, const std::function<void()>& alive) {
    FetchReply reply{request.id, request.part, {}, {}};
    try {
        reply.payload = payload_of(request, alive);
    } catch (const Error& error) {
        if (error.code() == ExitCode::kInternal) throw;
        reply.error = error.what();
    }
    return reply;
}

}  // namespace dslaunch::launch
