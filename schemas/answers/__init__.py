"""Answers to questions, from the tables of one broker, which :mod:`schemas.answers.facts` reads."""
