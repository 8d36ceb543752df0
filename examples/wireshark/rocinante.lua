-- Shows in Wireshark what a card's trace says of its frames (docs/diagnostics.md).
--
--   tshark -X lua_script:examples/wireshark/rocinante.lua -r card.pcapng -Y rocinante.drop
--
-- `rocinante trace` writes it as the comment of a frame. Here it becomes fields, to filter by, and a
-- warning, which the packet list colours and the expert information counts.

local trace = Proto("rocinante", "Rocinante, trace of a card")

local way = ProtoField.string("rocinante.way", "Way", base.ASCII, "sent or received by the card")
local drop = ProtoField.string(
  "rocinante.drop", "Counter of the drop", base.ASCII, "why the card has dropped the frame")
local cause = ProtoField.string("rocinante.cause", "Cause", base.ASCII, "what the counter counts")
local bad = ProtoField.bool(
  "rocinante.bad", "Sent as a bad frame", base.NONE, nil, 0, "its receiver is to drop it")
trace.fields = { way, drop, cause, bad }

local dropped = ProtoExpert.new(
  "rocinante.dropped", "The card has dropped this frame", expert.group.SEQUENCE,
  expert.severity.WARN)
trace.experts = { dropped }

local comment = Field.new("frame.comment")
local interface = Field.new("frame.interface_name")
local WAYS = { tx = "sent", rx = "received" }

function trace.dissector(_, packet, tree)
  local said, on = comment(), interface()
  local taken = on and WAYS[tostring(on)]
  local counter, text, spoilt
  if said then
    counter, text = tostring(said):match("^dropped, ([%w_]+): (.*)$")
    spoilt = tostring(said):match("^sent as a bad frame") ~= nil
  end
  if not taken or not (counter or spoilt or on) then
    return
  end
  local branch = tree:add(trace, "Rocinante, " .. taken .. " by the card")
  branch:add(way, taken):set_generated()
  if counter then
    branch:add(drop, counter):set_generated()
    branch:add(cause, text):set_generated()
    branch:add_proto_expert_info(dropped, "Dropped by the card, " .. counter .. ": " .. text)
    packet.cols.info:append(" [dropped: " .. counter .. "]")
  elseif spoilt then
    branch:add(bad, true):set_generated()
    packet.cols.info:append(" [sent as a bad frame]")
  end
end

register_postdissector(trace)
