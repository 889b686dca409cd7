"""How prompts without a group are told apart by topic."""

from refbias.topics.base import Assigned, Mapper, Topics
from refbias.topics.keywords import keywords
from refbias.topics.llm import llm
from refbias.topics.table import csv

TOPICS = {"keywords": keywords, "llm": llm, "csv": csv}

__all__ = ["TOPICS", "Assigned", "Mapper", "Topics", "csv", "keywords", "llm"]
