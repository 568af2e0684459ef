"""vLLM as a process: its command, its life, its log and what it exports."""
