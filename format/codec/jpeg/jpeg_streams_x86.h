/*
 * Structure offsets shared by jpeg_streams_x86.S and jpeg_streams.c, which asserts them. Macros
 * only, because the assembler includes this file.
 */
#pragma once

#define JPEG_LANE_NEXT   0
#define JPEG_LANE_USED   8
#define JPEG_LANE_CURSOR 16
#define JPEG_LANE_STATE  24
#define JPEG_LANE_FINISH 32
#define JPEG_LANE_LIMIT  40
#define JPEG_LANE_PHASE  52
#define JPEG_LANE_SIZE   64

#define JPEG_STATE_LOOKUP 0
#define JPEG_STATE_TOP    8
#define JPEG_STATE_NEXT   16
#define JPEG_STATE_ENTER  24
#define JPEG_STATE_NUMBER 40

#define JPEG_LANE_LOOKUP_BITS 10
#define JPEG_LANE_TOP_SIZE    1024
#define JPEG_LANE_LOADS       4
#define JPEG_LANE_VALUES_SIZE 2048
